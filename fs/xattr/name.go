// Package xattr keeps extended attributes in bytes: in the free end of an
// inode, and in a block that inodes with the same attributes may share. It is
// a pure algorithm: no lock, no I/O, no journal. The caller reads and writes
// the bytes, and counts references.
//
//	block   | header 32 | entry | entry | ... | 0000 |  free  | value | value |
//	inode             4 | entry | entry | ... | 0000 |  free  | value | value |
//	                    ^ value offsets count from here; in a block from its start
//
// Entries grow upwards and end with four zero bytes, values grow downwards
// from the end, all padded to four bytes. In a block the entries are sorted by
// (name index, name length, name), and hashed; in an inode neither.
//
// A name is stored without its prefix, which is a number: see Name.
package xattr

import (
	"errors"
	"strings"
	"syscall"

	"extfused/fs/ondisk"
)

// Limits of names and values, in bytes: those of xattr(7).
const (
	MaxNameLen = 255 // of a whole name, prefix included
	MaxValue   = 65536
)

// Errors that callers meet. Errors of images are *ondisk.CorruptError.
var (
	ErrNotFound  = errNo{"no such attribute", syscall.ENODATA}
	ErrExists    = errNo{"the attribute exists already", syscall.EEXIST}
	ErrNoSpace   = errNo{"no room for the attribute", syscall.ENOSPC}
	ErrNamespace = errNo{"attributes with this prefix are not supported", syscall.EOPNOTSUPP}
	ErrName      = errNo{"the attribute's name is empty or too long", syscall.ERANGE}
	ErrEmpty     = errNo{"the attribute's name ends after its prefix", syscall.EINVAL}
	ErrValue     = errNo{"the attribute's value is too long", syscall.E2BIG}
)

// errNo is an error that is (errors.Is, errors.As) an errno.
type errNo struct {
	msg string
	no  syscall.Errno
}

func (e errNo) Error() string { return e.msg }
func (e errNo) Unwrap() error { return e.no }

// Name is an attribute's name as ext4 keeps it.
type Name struct {
	Index  uint8  // e_name_index: stands for the prefix
	Suffix string // what follows the prefix
}

// prefixes: those with whole set are a full name, and have no suffix.
var prefixes = [...]struct {
	text  string
	index uint8
	whole bool
}{
	{"user.", ondisk.XattrIndexUser, false},
	{"security.", ondisk.XattrIndexSecurity, false},
	{"trusted.", ondisk.XattrIndexTrusted, false},
	{"system.posix_acl_access", ondisk.XattrIndexPosixACLAccess, true},
	{"system.posix_acl_default", ondisk.XattrIndexPosixACLDefault, true},
	{"system.richacl", ondisk.XattrIndexRichACL, true},
	{"system.", ondisk.XattrIndexSystem, false},
	{"gnu.", ondisk.XattrIndexHurd, false},
	{"lustre.", ondisk.XattrIndexLustre, false},
}

// The names that ext4 itself gives a meaning.
var (
	ACLAccess  = Name{Index: ondisk.XattrIndexPosixACLAccess}
	ACLDefault = Name{Index: ondisk.XattrIndexPosixACLDefault}
	Data       = Name{Index: ondisk.XattrIndexSystem, Suffix: "data"} // the rest of an inline file
	Capability = Name{Index: ondisk.XattrIndexSecurity, Suffix: "capability"}
)

// ParseName splits the name that a system call uses. Errors: ErrNamespace,
// ErrName, ErrEmpty.
func ParseName(full string) (Name, error) {
	if full == "" || len(full) > MaxNameLen {
		return Name{}, ErrName
	}
	for i := range prefixes {
		p := &prefixes[i]
		rest, ok := strings.CutPrefix(full, p.text)
		switch {
		case !ok || p.whole && rest != "":
		case !p.whole && rest == "":
			return Name{}, ErrEmpty
		default:
			return Name{Index: p.index, Suffix: rest}, nil
		}
	}
	return Name{}, ErrNamespace
}

// String is the name that a system call uses; "" for an index that has none
// (encryption contexts, and what is not known).
func (n Name) String() string {
	for i := range prefixes {
		if p := &prefixes[i]; p.index == n.Index {
			return p.text + n.Suffix
		}
	}
	return ""
}

// Trusted tells whether the name is the superuser's alone.
func (n Name) Trusted() bool { return n.Index == ondisk.XattrIndexTrusted }

// Listed tells whether listxattr(2) shows the name. The kernel shows no
// system. attribute but the ACLs.
func (n Name) Listed() bool {
	switch n.Index {
	case ondisk.XattrIndexUser, ondisk.XattrIndexTrusted, ondisk.XattrIndexSecurity, ondisk.XattrIndexHurd:
		return n.Suffix != ""
	case ondisk.XattrIndexPosixACLAccess, ondisk.XattrIndexPosixACLDefault:
		return n.Suffix == ""
	}
	return false
}

// IsNotFound tells whether err says that the attribute does not exist.
func IsNotFound(err error) bool { return errors.Is(err, ErrNotFound) }
