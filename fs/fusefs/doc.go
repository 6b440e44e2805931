// Package fusefs translates between the FUSE protocol and ext4.FS, and does
// nothing else: no format, no allocation, no journal. FileSystem implements
// go-fuse's RawFileSystem and assumes nothing about how requests arrive, so
// any transport that go-fuse can drive serves the same file system.
//
// # Numbers
//
// A node id is the inode number, except that FUSE wants 1 for the root, which
// is inode 2 in ext4: those two are swapped (nodeID, inode). The number that
// stat(2) shows is always the image's. A file handle is an index in a table of
// open files; 0 stands for none, which is what directories have: OPENDIR is
// answered ENOSYS once, whereupon the kernel opens directories by itself and
// keeps their listing in its cache.
//
// # Who keeps what
//
// We are the only writer of the image, so names, attributes, symbolic links
// and data stay in the kernel's caches until it drops them; the timeouts are
// long. With the writeback cache the kernel also decides the size, mtime and
// ctime of a regular file while it has it open: it tells us by SETATTR.
//
// Permission checks (default_permissions), locks and umask without ACLs are
// the kernel's. FLUSH is answered ENOSYS once and then never sent.
//
// # Locks
//
// The package holds no lock while it calls ext4.FS or the kernel:
//
//	handles.mu      leaf: the list of free handles
package fusefs
