package main

import "sync/atomic"

type op int

const (
	opLookup op = iota
	opForget
	opGetAttr
	opSetAttr
	opMknod
	opMkdir
	opCreate
	opSymlink
	opReadlink
	opLink
	opUnlink
	opRmdir
	opRename
	opOpen
	opRead
	opWrite
	opFallocate
	opRelease
	opFlush
	opFsync
	opFsyncDir
	opGetXAttr
	opOpenDir
	opReadDir
	opReadDirPlus
	opReleaseDir
	opStatFs
	opCount
)

var opNames = [opCount]string{"LOOKUP", "FORGET", "GETATTR", "SETATTR", "MKNOD", "MKDIR", "CREATE", "SYMLINK",
	"READLINK", "LINK", "UNLINK", "RMDIR", "RENAME", "OPEN", "READ", "WRITE", "FALLOCATE", "RELEASE", "FLUSH",
	"FSYNC", "FSYNCDIR", "GETXATTR", "OPENDIR", "READDIR", "READDIRPLUS", "RELEASEDIR", "STATFS"}

// counters counts requests; each operation has a cache line of its own.
type counters [opCount]struct {
	n atomic.Uint64
	_ [56]byte
}

func (c *counters) add(o op) { c[o].n.Add(1) }

func (c *counters) snapshot() map[string]uint64 {
	m := map[string]uint64{}
	for i := range c {
		if v := c[i].n.Load(); v > 0 {
			m[opNames[i]] = v
		}
	}
	return m
}
