package xattr

import (
	"errors"
	"fmt"
	"syscall"
)

// Tags of ACL entries, as in both formats (acl(5)).
const (
	TagUserObj  = 0x01
	TagUser     = 0x02
	TagGroupObj = 0x04
	TagGroup    = 0x08
	TagMask     = 0x10
	TagOther    = 0x20
)

// Versions of the two formats.
const (
	aclDiskVersion = 1
	aclWireVersion = 2
	aclNoID        = 0xFFFFFFFF // id of an entry that has none, on the wire
)

// ErrACL is wrapped by every error about an ACL's content.
var ErrACL = fmt.Errorf("not a valid ACL: %w", syscall.EINVAL)

// ACE is one entry of an ACL.
type ACE struct {
	Tag  uint16
	Perm uint16 // rwx: 0 to 7
	ID   uint32 // of the user or group, with TagUser and TagGroup
}

// ACL is a POSIX access control list, in the order of acl(5).
type ACL []ACE

func named(tag uint16) bool { return tag == TagUser || tag == TagGroup }

// ParseWire reads the value that getxattr(2) and setxattr(2) use:
//
//	u32 2, then for each entry u16 tag, u16 perm, u32 id
//
// An ACL without entries is nil: setting it removes the attribute.
func ParseWire(b []byte) (ACL, error) {
	if len(b) < 4 || (len(b)-4)%8 != 0 || le.Uint32(b) != aclWireVersion {
		return nil, fmt.Errorf("%w: %d bytes of another format", ErrACL, len(b))
	}
	var acl ACL
	for b = b[4:]; len(b) > 0; b = b[8:] {
		e := ACE{Tag: le.Uint16(b), Perm: le.Uint16(b[2:])}
		if named(e.Tag) {
			e.ID = le.Uint32(b[4:])
		}
		acl = append(acl, e)
	}
	if acl == nil {
		return nil, nil
	}
	return acl, acl.Valid()
}

// ParseDisk reads the value that ext4 stores:
//
//	u32 1, then for each entry u16 tag, u16 perm, and for TagUser and TagGroup u32 id
func ParseDisk(b []byte) (ACL, error) {
	if len(b) < 4 || le.Uint32(b) != aclDiskVersion {
		return nil, fmt.Errorf("%w: %d bytes of another format", ErrACL, len(b))
	}
	var acl ACL
	for b = b[4:]; len(b) > 0; {
		if len(b) < 4 {
			return nil, fmt.Errorf("%w: it ends inside an entry", ErrACL)
		}
		e := ACE{Tag: le.Uint16(b), Perm: le.Uint16(b[2:])}
		b = b[4:]
		if named(e.Tag) {
			if len(b) < 4 {
				return nil, fmt.Errorf("%w: it ends inside an entry", ErrACL)
			}
			e.ID = le.Uint32(b)
			b = b[4:]
		}
		acl = append(acl, e)
	}
	if acl == nil {
		return nil, nil
	}
	return acl, acl.Valid()
}

// Wire is the inverse of ParseWire.
func (a ACL) Wire() []byte {
	b := le.AppendUint32(make([]byte, 0, 4+8*len(a)), aclWireVersion)
	for _, e := range a {
		id := e.ID
		if !named(e.Tag) {
			id = aclNoID
		}
		b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, e.Tag), e.Perm), id)
	}
	return b
}

// Disk is the inverse of ParseDisk.
func (a ACL) Disk() []byte {
	b := le.AppendUint32(make([]byte, 0, 4+8*len(a)), aclDiskVersion)
	for _, e := range a {
		b = le.AppendUint16(le.AppendUint16(b, e.Tag), e.Perm)
		if named(e.Tag) {
			b = le.AppendUint32(b, e.ID)
		}
	}
	return b
}

// Valid checks the order of acl(5): user object, users, group object, groups,
// mask (which users and groups need), other; permissions from 0 to 7.
func (a ACL) Valid() error {
	seen, last := uint16(0), uint16(0)
	for i, e := range a {
		single := !named(e.Tag)
		switch {
		case e.Tag == 0 || e.Tag&(e.Tag-1) != 0 || e.Tag > TagOther:
			return fmt.Errorf("%w: entry %d has tag %#x", ErrACL, i, e.Tag)
		case e.Perm > 7:
			return fmt.Errorf("%w: entry %d has permissions %#o", ErrACL, i, e.Perm)
		case e.Tag < last || single && seen&e.Tag != 0:
			return fmt.Errorf("%w: entry %d is out of order", ErrACL, i)
		case !single && e.ID == aclNoID:
			return fmt.Errorf("%w: entry %d names nobody", ErrACL, i)
		}
		seen, last = seen|e.Tag, e.Tag
	}
	const must = TagUserObj | TagGroupObj | TagOther
	if seen&must != must || seen&(TagUser|TagGroup) != 0 && seen&TagMask == 0 {
		return fmt.Errorf("%w: entries are missing", ErrACL)
	}
	return nil
}

// IsACLError tells whether err is about an ACL's content.
func IsACLError(err error) bool { return errors.Is(err, ErrACL) }

// find returns the entry with a tag that occurs once.
func (a ACL) find(tag uint16) *ACE {
	for i := range a {
		if a[i].Tag == tag {
			return &a[i]
		}
	}
	return nil
}

// groupClass is the entry that the group bits of a mode stand for.
func (a ACL) groupClass() *ACE {
	if m := a.find(TagMask); m != nil {
		return m
	}
	return a.find(TagGroupObj)
}

// Mode gives a valid access ACL's permission bits, and whether they say all
// that it says: such an ACL need not be stored.
func (a ACL) Mode() (perm uint32, all bool) {
	perm = uint32(a.find(TagUserObj).Perm)<<6 | uint32(a.groupClass().Perm)<<3 | uint32(a.find(TagOther).Perm)
	return perm, len(a) == 3
}

// Chmod changes a valid access ACL as chmod(2) to perm does.
func (a ACL) Chmod(perm uint32) {
	a.find(TagUserObj).Perm = uint16(perm >> 6 & 7)
	a.groupClass().Perm = uint16(perm >> 3 & 7)
	a.find(TagOther).Perm = uint16(perm & 7)
}

// Inherit makes, from a directory's valid default ACL, the access ACL of a new
// child that is created with mode perm (umask does not count then), and the
// child's permission bits. acl is nil if the bits say it all.
func (a ACL) Inherit(perm uint32) (acl ACL, bits uint32) {
	acl = append(ACL(nil), a...)
	for shift, e := range map[int]*ACE{6: acl.find(TagUserObj), 3: acl.groupClass(), 0: acl.find(TagOther)} {
		e.Perm &= uint16(perm >> shift & 7)
	}
	bits, all := acl.Mode()
	if all {
		return nil, bits
	}
	return acl, bits
}
