package ondisk

import (
	"errors"
	"fmt"
	"strings"
)

// CorruptError says that something read from the image cannot be right. It is
// what every decoder returns; at the FUSE edge it becomes EUCLEAN.
//
// Group, Inode and Block tell the place as far as it is known. Inode and Block
// are 0 when they do not apply. Group is only told when HasGroup is set, since
// group 0 exists.
type CorruptError struct {
	What     string
	Group    GroupNumber
	Inode    InodeNumber
	Block    FsBlock
	HasGroup bool
}

// Error tells what is wrong and where, in one line.
func (e *CorruptError) Error() string {
	var b strings.Builder
	b.WriteString("corrupt file system: ")
	b.WriteString(e.What)
	sep := " ("
	part := func(format string, n any) {
		b.WriteString(sep)
		fmt.Fprintf(&b, format, n)
		sep = ", "
	}
	if e.HasGroup || e.Group != 0 {
		part("group %d", e.Group)
	}
	if e.Inode != 0 {
		part("inode %d", e.Inode)
	}
	if e.Block != 0 {
		part("block %d", e.Block)
	}
	if sep == ", " {
		b.WriteByte(')')
	}
	return b.String()
}

// Corrupt makes a CorruptError without a place; the caller that knows the
// inode, the block or the group adds it with InInode, AtBlock or InGroup.
func Corrupt(format string, args ...any) *CorruptError {
	return &CorruptError{What: fmt.Sprintf(format, args...)}
}

// InInode returns err with its inode filled in, if it is a CorruptError that
// does not name one yet; any other error is returned as it is.
func InInode(err error, ino InodeNumber) error {
	var c *CorruptError
	if errors.As(err, &c) && c.Inode == 0 {
		c.Inode = ino
	}
	return err
}

// AtBlock is InInode for the block number.
func AtBlock(err error, blk FsBlock) error {
	var c *CorruptError
	if errors.As(err, &c) && c.Block == 0 {
		c.Block = blk
	}
	return err
}

// InGroup is InInode for the group number.
func InGroup(err error, g GroupNumber) error {
	var c *CorruptError
	if errors.As(err, &c) && !c.HasGroup {
		c.Group, c.HasGroup = g, true
	}
	return err
}

// ErrNotExt4 is what SuperBlock.Decode returns when the magic number is
// missing: the bytes are not an ext2, ext3 or ext4 superblock at all.
var ErrNotExt4 = errors.New("not an ext2, ext3 or ext4 file system (no superblock magic)")

// ErrTruncated is wrapped by SuperBlock.Check when the image is shorter than
// its superblock says.
var ErrTruncated = errors.New("image is shorter than its superblock says")

func errShort(what string, want, got int) error {
	return Corrupt("%s needs %d bytes, there are %d", what, want, got)
}
