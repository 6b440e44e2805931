package command

import (
	"errors"
	"io/fs"

	"extfused/fs/ondisk"
)

// cause strips "lstat /long/path: " from an error about a path that the
// message names anyway.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func isCorrupt(err error) bool {
	var c *ondisk.CorruptError
	return errors.As(err, &c)
}
