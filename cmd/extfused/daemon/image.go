package daemon

import (
	"errors"
	"fmt"
	"os"

	"extfused/blockdev"
	"extfused/fs/ext4"
)

// openImage opens and locks the image, and cuts out the part that is to be
// mounted.
func openImage(c *Config) (blockdev.Device, error) {
	dev, err := blockdev.OpenFile(c.Image, blockdev.OpenOptions{ReadOnly: c.FS.ReadOnly})
	if err != nil {
		var nw *blockdev.NotWritableError
		if errors.As(err, &nw) {
			return nil, fmt.Errorf("%w: mount it with -o ro, or change its permissions", err)
		}
		return nil, err
	}
	if c.Offset == 0 && c.SizeLimit == 0 {
		return dev, nil
	}
	size := dev.Size() - c.Offset
	if size <= 0 {
		dev.Close()
		return nil, fmt.Errorf("offset=%d is beyond the end of %s (%d bytes): %w", c.Offset, c.Image, dev.Size(), ext4.ErrBadOption)
	}
	if c.SizeLimit > 0 {
		size = min(size, c.SizeLimit)
	}
	section, err := blockdev.NewSection(dev, c.Offset, size)
	if err != nil {
		dev.Close()
		return nil, err
	}
	return section, nil
}

// mountImage mounts the file system, and says more about an image that is none.
func mountImage(dev blockdev.Device, c *Config) (*ext4.FS, error) {
	fs, err := ext4.Mount(dev, c.FS)
	switch {
	case err == nil:
		return fs, nil
	case errors.Is(err, ext4.ErrNotExt4):
		if what := identify(dev); what != "" {
			return nil, fmt.Errorf("%s holds no ext4 file system, but %s: %w", c.Image, what, errSaid{ext4.ErrNotExt4})
		}
	}
	return nil, fmt.Errorf("%s: %w", c.Image, err)
}

// errSaid is an error whose text has been said; it still is what it wraps.
type errSaid struct{ error }

func (e errSaid) Error() string { return "nothing was changed" }
func (e errSaid) Unwrap() error { return e.error }

// openJournalDevice opens the device of an external journal.
func openJournalDevice(c *Config) (blockdev.Device, error) {
	if c.JournalPath == "" {
		return nil, nil
	}
	dev, err := blockdev.OpenFile(c.JournalPath, blockdev.OpenOptions{ReadOnly: c.FS.ReadOnly})
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("journal_path=%s does not exist: %w", c.JournalPath, err)
	}
	return dev, err
}
