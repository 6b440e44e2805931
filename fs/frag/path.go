package frag

import (
	"fmt"
	"strings"
	"syscall"

	"extfused/fs/ext4"
)

// File is the layout of one file by name.
type File struct {
	Path string `json:"path"`
	ext4.FileLayout
}

// Lookup finds the file at path, from the root of the file system, and its
// layout. Symlinks are not followed. Errors name the path.
func Lookup(fs *ext4.FS, path string) (*File, error) {
	ino := ext4.RootIno
	for _, name := range strings.Split(path, "/") {
		if name == "" || name == "." {
			continue
		}
		a, err := fs.Lookup(ino, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		// Held until the end: its number must not get another life meanwhile.
		defer fs.Forget(a.Ino, 1)
		ino = a.Ino
	}
	l, err := fs.FileLayout(ino)
	if err == syscall.ESTALE {
		err = syscall.ENOENT
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &File{Path: path, FileLayout: l}, nil
}
