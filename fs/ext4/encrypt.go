package ext4

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"syscall"

	"extfused/fs/htree"
	"extfused/fs/ondisk"
)

// Encrypted files and directories (feature encrypt), for which there is no key
// here, as the kernel shows them to those without one: attributes are to be
// read and changed, files and directories can be removed, names appear in the
// no-key form, and what needs content, or a new name, is ENOKEY.
//
// The no-key form (fs/crypto/fname.c) is the base64url of the entry's hash, the
// first 149 bytes of the encrypted name, and if there are more, the SHA-256 of
// the rest.

const (
	nokeyHash   = 8   // two words
	nokeyBytes  = 149 // of the name
	nokeyLonger = nokeyHash + nokeyBytes + sha256.Size
)

var nokeyEncoding = base64.RawURLEncoding

// encrypted tells whether the content of i, or the names in it, are encrypted.
func (i *Inode) encrypted() bool { return i.raw.Flags&ondisk.InodeEncrypt != 0 }

// nokeyName is the no-key form of an encrypted name.
func nokeyName(major, minor uint32, name []byte) []byte {
	b := make([]byte, nokeyHash, nokeyLonger)
	binary.LittleEndian.PutUint32(b, major)
	binary.LittleEndian.PutUint32(b[4:], minor)
	b = append(b, name[:min(len(name), nokeyBytes)]...)
	if len(name) > nokeyBytes {
		rest := sha256.Sum256(name[nokeyBytes:])
		b = append(b, rest[:]...)
	}
	return nokeyEncoding.AppendEncode(nil, b)
}

// shownName is how an entry of dir is listed.
func (dir *Inode) shownName(name []byte) []byte {
	if !dir.encrypted() || string(name) == "." || string(name) == ".." {
		return name
	}
	p := &dir.fs.ops.dir
	if !p.DirIndex || p.HashVersion == ondisk.HashLegacy {
		return nokeyName(0, 0, name)
	}
	major, minor := p.Hash(p.HashVersion, name)
	return nokeyName(major, minor, name)
}

// storedName is the name in dir's blocks that is shown as name. ENOENT: there
// can be none.
func (dir *Inode) storedName(name string) (string, error) {
	if !dir.encrypted() || name == "." || name == ".." {
		return name, nil
	}
	b, err := nokeyEncoding.DecodeString(name)
	if err != nil || len(b) <= nokeyHash || len(b) > nokeyLonger {
		return "", syscall.ENOENT
	}
	if len(b) <= nokeyHash+nokeyBytes {
		return string(b[nokeyHash:]), nil
	}
	if len(b) < nokeyLonger {
		return "", syscall.ENOENT
	}
	return dir.longStoredName(string(b[nokeyHash:nokeyHash+nokeyBytes]), [sha256.Size]byte(b[nokeyHash+nokeyBytes:]))
}

// longStoredName looks through all names for one that begins with head and goes
// on with what has the given digest.
func (dir *Inode) longStoredName(head string, digest [sha256.Size]byte) (found string, err error) {
	d := openDirOp(dir, nil)
	defer d.close()
	err = d.ReadDir(0, func(e htree.Entry) bool {
		if len(e.Name) > nokeyBytes && string(e.Name[:nokeyBytes]) == head && sha256.Sum256(e.Name[nokeyBytes:]) == digest {
			found = string(e.Name)
		}
		return found == ""
	})
	if err == nil && found == "" {
		return "", syscall.ENOENT
	}
	return found, dir.fs.dirError(err)
}

// mayName is ENOKEY for a directory that takes no new name, for want of the key.
func (dir *Inode) mayName() error {
	if dir.encrypted() {
		return syscall.ENOKEY
	}
	return nil
}

// nokeyTarget is the target of an encrypted symlink, given as it is stored: its
// length in two bytes, and that many.
func nokeyTarget(b []byte) ([]byte, error) {
	if len(b) < 2 {
		return nil, ondisk.Corrupt("encrypted symlink of %d bytes", len(b))
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n == 0 || n > len(b)-2 {
		return nil, ondisk.Corrupt("encrypted symlink with a target of %d bytes in %d", n, len(b))
	}
	return nokeyName(0, 0, b[2:2+n]), nil
}
