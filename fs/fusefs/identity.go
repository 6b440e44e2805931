package fusefs

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
)

// noID is the kernel's FUSE_INVALID_UIDGID: once a mount allows id-mapped
// mounts, only requests that make something say for whom.
const noID = ^uint32(0)

// caller is on whose behalf a request runs. The kernel's own requests
// (write-back) come with pid 0 and uid 0. Where the request does not say who
// it is, the process is asked.
func (f *FileSystem) caller(h *fuse.InHeader, umask uint32) *ext4.Caller {
	c := &ext4.Caller{UID: h.Uid, GID: h.Gid, PID: h.Pid, Umask: umask}
	if c.UID == noID {
		c.UID, c.GID = processIDs(c.PID)
	}
	if c.UID != 0 { // root needs no group to be let through
		c.Groups = func() []uint32 { return processGroups(c.PID) }
	}
	return c
}

// root tells whether a request comes from the superuser.
func root(h *fuse.InHeader) bool {
	uid := h.Uid
	if uid == noID {
		uid, _ = processIDs(h.Pid)
	}
	return uid == 0
}

// maker is the caller as the owner of what he makes.
func (f *FileSystem) maker(h *fuse.InHeader, umask uint32) *ext4.Caller {
	c := f.caller(h, umask)
	if f.owner.uid != nil {
		c.UID = *f.owner.uid
	}
	if f.owner.gid != nil {
		c.GID = *f.owner.gid
	}
	return c
}

// owner is whom all files belong to, as far as set.
type owner struct {
	uid, gid *uint32
}

// shown is whom stat(2) names.
func (o *owner) shown(a *ext4.Attr) (uid, gid uint32) {
	uid, gid = a.UID, a.GID
	if o.uid != nil {
		uid = *o.uid
	}
	if o.gid != nil {
		gid = *o.gid
	}
	return uid, gid
}

// permits tells whether a change leaves the files with their one owner, and
// takes what would be no change out of it.
func (o *owner) permits(s *ext4.SetAttr) bool {
	if s.Valid&ext4.SetUID != 0 && o.uid != nil {
		if s.UID != *o.uid {
			return false
		}
		s.Valid &^= ext4.SetUID
	}
	if s.Valid&ext4.SetGID != 0 && o.gid != nil {
		if s.GID != *o.gid {
			return false
		}
		s.Valid &^= ext4.SetGID
	}
	return true
}

// processGroups reads the supplementary groups of a process, which FUSE does
// not send along. A process that has gone has none.
func processGroups(pid uint32) []uint32 { return processNumbers(pid, "Groups:") }

// processIDs reads the user and group that a process's file accesses are made
// as: nobody's if it has gone.
func processIDs(pid uint32) (uid, gid uint32) {
	const fsID = 3 // real, effective, saved, file system
	uids, gids := processNumbers(pid, "Uid:"), processNumbers(pid, "Gid:")
	if len(uids) <= fsID || len(gids) <= fsID {
		return noID, noID
	}
	return uids[fsID], gids[fsID]
}

// processNumbers reads a line of numbers of /proc/PID/status.
func processNumbers(pid uint32, key string) []uint32 {
	if pid == 0 {
		return nil
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	defer file.Close()
	for sc := bufio.NewScanner(file); sc.Scan(); {
		if list, ok := strings.CutPrefix(sc.Text(), key); ok {
			return parseNumbers(list)
		}
	}
	return nil
}

func parseNumbers(list string) (numbers []uint32) {
	for _, word := range strings.Fields(list) {
		if g, err := strconv.ParseUint(word, 10, 32); err == nil {
			numbers = append(numbers, uint32(g))
		}
	}
	return numbers
}
