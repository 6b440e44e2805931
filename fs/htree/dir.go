// Package htree reads and writes ext4 directories, linear and hash-indexed,
// as bytes. It takes no lock, does no I/O, starts no goroutine and knows no
// journal: blocks come from a Store, and the caller holds whatever keeps the
// directory still while a method of Dir runs (read lock for Lookup, ReadDir
// and Empty; write lock for the rest).
//
// A directory is a file of blocks. A leaf block is a chain of entries:
//
//	0        4        6        7          8             rec_len
//	+--------+--------+--------+----------+------ - - --+
//	| inode  |rec_len |name_len|file_type | name        |   inode 0 = unused
//	+--------+--------+--------+----------+------ - - --+
//
// whose rec_len add up to the block size; with metadata_csum the last 12
// bytes look like an unused entry of file type 0xDE and hold the checksum.
//
// An indexed directory (inode flag INDEX, feature dir_index) keeps in block 0
// the root of a tree over the hashes of the names. It looks like a linear
// block to those who cannot read it: "." of 12 bytes, ".." of all the rest.
//
//	block 0, root                     node (3 levels at most)
//	0   "." entry, rec_len 12         0  unused entry, rec_len = block size
//	12  ".." entry, rec_len = rest    8  limit, count | block
//	24  dx_root_info                  16 hash | block ...
//	32  limit, count | block             tail (checksum) after limit entries
//	40  hash | block ...
//
// Each (hash, block) pair says: names of this hash and above, up to the next
// pair, are below this block; the first pair has no hash, it stands for 0.
// Hashes are even; bit 0 of a pair's hash says that names of that hash are
// also at the end of the block before (a collision split in two).
//
// Facts: Documentation/filesystems/ext4/directory.rst of the kernel, debugfs
// htree_dump and dx_hash.
package htree

import (
	"errors"
	"fmt"

	"extfused/fs/ondisk"
)

// MaxNameLen is the longest name of an entry, in bytes.
const MaxNameLen = 255

// MaxInsertBlocks is the largest number of directory blocks that one Insert
// writes: root and two nodes, each split in two, and a leaf split in two.
const MaxInsertBlocks = 8

// Errors about names and space. Content that makes no sense is reported as
// *ondisk.CorruptError; errors of the Store are handed through unchanged.
var (
	ErrNotFound    = errors.New("no such entry in the directory")
	ErrExist       = errors.New("the directory has an entry of that name")
	ErrDirFull     = errors.New("the directory's index is full") // ENOSPC
	ErrNameTooLong = errors.New("name longer than 255 bytes")
	ErrInvalidName = errors.New("name not allowed here") // "", "." and "..", "/" or NUL inside
)

// Store gives the directory's blocks. Slices have BlockSize bytes, are the
// current content, and stay valid until the method of Dir that asked returns.
type Store interface {
	// Get returns block l, verified. With write set, the caller may change
	// it (journal write access has been taken); it calls Dirty if it did.
	// A hole is corruption.
	Get(l ondisk.LBlock, write bool) ([]byte, error)
	// New appends a zeroed block to the directory, which it makes one block
	// longer, with write access; the number is the old length in blocks.
	New() (ondisk.LBlock, []byte, error)
	// Dirty sets the checksum of block l (in its dirent or dx tail, ondisk.Csum.SetDir
	// knows which) and hands it to the journal.
	Dirty(l ondisk.LBlock) error
}

// Params is what all directories of a file system have in common. It must not
// change while a Dir uses it.
type Params struct {
	BlockSize   int                // bytes, 1024 ... 65536
	MaxInode    ondisk.InodeNumber // s_inodes_count
	HasCsum     bool               // metadata_csum
	FileType    bool               // filetype
	DirIndex    bool               // dir_index
	LargeDir    bool               // large_dir: three levels instead of two
	HashVersion uint8              // s_def_hash_version: ondisk.HashLegacy, HashHalfMD4 or HashTea
	Unsigned    bool               // s_flags: names are hashed as unsigned chars
	HashSeed    [4]uint32          // s_hash_seed; all zero stands for the default
}

// Dir is one directory. NBlocks and Indexed mirror the inode's i_size and
// INDEX flag; Insert may change both, and the caller writes them back.
type Dir struct {
	*Params
	Store   Store
	Ino     ondisk.InodeNumber // the directory itself, for error messages
	NBlocks ondisk.LBlock      // i_size / BlockSize
	Indexed bool               // inode flag INDEX
	AnyName bool               // names are any bytes: those of an encrypted directory
}

// Lookup returns the inode and the file type (FtUnknown without the filetype
// feature) of name; "." and ".." are names too. It allocates nothing.
func (d *Dir) Lookup(name string) (ondisk.InodeNumber, uint8, error) {
	e, err := d.find(name, false)
	if err != nil {
		return 0, 0, err
	}
	ino := dirent(e.b, e.off).Inode()
	if !d.inodeOK(ino) {
		return 0, 0, d.corrupt(e.blk, "entry with an inode number out of range")
	}
	return ino, d.fileType(e.b, e.off), nil
}

// Set makes the existing entry name, which may be "..", point to another
// inode. ErrNotFound if there is none.
func (d *Dir) Set(name string, ino ondisk.InodeNumber, ftype uint8) error {
	e, err := d.find(name, true)
	if err != nil {
		return err
	}
	de := dirent(e.b, e.off)
	de.SetInode(ino)
	if d.FileType {
		de.SetFileType(ftype)
	}
	return d.Store.Dirty(e.blk)
}

// Delete removes the entry name. Its space goes to the entry before it in the
// block, or becomes an unused entry at the block's start; blocks are not
// given back.
func (d *Dir) Delete(name string) error {
	if name == "." || name == ".." {
		return ErrInvalidName
	}
	e, err := d.find(name, true)
	if err != nil {
		return err
	}
	d.erase(e.b, e.off, e.prev)
	return d.Store.Dirty(e.blk)
}

// Insert adds an entry. ErrExist if the name is there already, ErrDirFull if
// the index cannot grow; when it or the Store fails, the directory is still
// whole, though perhaps a block longer.
func (d *Dir) Insert(name string, ino ondisk.InodeNumber, ftype uint8) error {
	if err := checkNewName(name); err != nil {
		return err
	}
	if d.indexed() {
		return d.insertIndexed(name, ino, ftype)
	}
	return d.insertLinear(name, ino, ftype)
}

// InitEmpty makes block 0 of a directory that has no block yet: "." and "..".
func (d *Dir) InitEmpty(self, parent ondisk.InodeNumber) error {
	l, b, err := d.Store.New()
	if err != nil {
		return err
	}
	d.NBlocks = l + 1
	d.InitBlock(b, self, parent)
	return d.Store.Dirty(l)
}

// InitBlock fills b with the first block of an empty directory, without the
// checksum. mkfs uses it directly.
func (p *Params) InitBlock(b []byte, self, parent ondisk.InodeNumber) {
	clear(b)
	p.putDirent(b, 0, minRecLen, self, ".", ondisk.FtDir)
	p.putDirent(b, minRecLen, p.leafLimit()-minRecLen, parent, "..", ondisk.FtDir)
	p.initTail(b)
}

// InitLeaf fills b with an empty leaf block, without the checksum. mkfs uses
// it for the spare blocks of lost+found.
func (p *Params) InitLeaf(b []byte) {
	clear(b)
	p.setRecLen(b, 0, p.leafLimit())
	p.initTail(b)
}

// indexed tells whether the tree is to be used. An INDEX flag without the
// dir_index feature means nothing: the blocks are then read one after another.
func (d *Dir) indexed() bool { return d.DirIndex && d.Indexed }

func (d *Dir) inodeOK(ino ondisk.InodeNumber) bool { return ino != 0 && ino <= d.MaxInode }

// corrupt reports what is wrong with logical block l of the directory.
func (d *Dir) corrupt(l ondisk.LBlock, what string) error {
	return &ondisk.CorruptError{
		What:  fmt.Sprintf("directory block %d: %s", l, what),
		Inode: d.Ino,
	}
}

func checkNewName(name string) error {
	switch {
	case len(name) > MaxNameLen:
		return ErrNameTooLong
	case name == "", name == ".", name == "..":
		return ErrInvalidName
	}
	for i := 0; i < len(name); i++ {
		if name[i] == '/' || name[i] == 0 {
			return ErrInvalidName
		}
	}
	return nil
}
