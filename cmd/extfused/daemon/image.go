package daemon

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"extfused/blockdev"
	"extfused/fs/ext4"
)

// openImage opens and locks the image, and cuts out the part that is to be
// mounted.
func openImage(c *Config) (blockdev.Device, error) {
	dev, err := blockdev.OpenFile(c.Image, blockdev.OpenOptions{ReadOnly: c.FS.ReadOnly})
	if err != nil {
		return nil, openError(c.Image, err)
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

// blockDevice is the number major:minor of the block device at path, or "".
func blockDevice(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// openError adds what to do about an image that cannot be opened.
func openError(path string, err error) error {
	var nw *blockdev.NotWritableError
	switch {
	case errors.As(err, &nw):
		return fmt.Errorf("%w: mount it with -o ro, or change its permissions", err)
	case errors.Is(err, os.ErrNotExist):
		return &explained{fmt.Sprintf("image %s does not exist: make one with extfused mkfs", path), err}
	}
	return err
}

// mountImage mounts the file system, and says more about an image that is none.
func mountImage(dev blockdev.Device, c *Config) (*ext4.FS, error) {
	fs, err := ext4.Mount(dev, c.FS)
	switch {
	case err == nil:
		return fs, nil
	case errors.Is(err, ext4.ErrNotExt4):
		if what := identify(dev); what != "" {
			return nil, &explained{fmt.Sprintf("%s holds no ext4 file system, but %s", c.Image, what), err}
		}
		return nil, &explained{fmt.Sprintf("%s holds no ext4 file system: extfused mkfs makes one", c.Image), err}
	}
	return nil, fmt.Errorf("%s: %w", c.Image, err)
}

// explained is an error in better words; it still is what err is.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

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
