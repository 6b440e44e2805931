package fusefs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// capability is a feature of the kernel's FUSE client that we ask for.
type capability struct {
	flag     uint64
	name     string
	required bool   // data or semantics depend on it: no mount without
	since    string // the kernel that has it
	without  string // what is lost
}

// capabilities lists what go-fuse has to ask for in addition to its defaults.
// Those that its options turn on (symlink caching, ACLs, explicit data cache
// control) are here too, for the check.
var capabilities = []capability{
	{fuse.CAP_WRITEBACK_CACHE, "WRITEBACK_CACHE", true, "3.15", ""},
	{fuse.CAP_ATOMIC_O_TRUNC, "ATOMIC_O_TRUNC", true, "2.6.29", ""},
	{fuse.CAP_BIG_WRITES, "BIG_WRITES", true, "2.6.26", ""},
	{fuse.CAP_HANDLE_KILLPRIV_V2, "HANDLE_KILLPRIV_V2", false, "5.12", "writes cost an extra request"},
	{fuse.CAP_PARALLEL_DIROPS, "PARALLEL_DIROPS", false, "4.7", "lookups in one directory wait for each other"},
	{fuse.CAP_READDIRPLUS, "READDIRPLUS", false, "3.9", "listings need a lookup for each name"},
	{fuse.CAP_READDIRPLUS_AUTO, "READDIRPLUS_AUTO", false, "3.9", "plain listings fetch attributes"},
	{fuse.CAP_NO_OPENDIR_SUPPORT, "NO_OPENDIR_SUPPORT", true, "5.1", ""},
	{fuse.CAP_CACHE_SYMLINKS, "CACHE_SYMLINKS", false, "4.20", "symbolic links are read again and again"},
	{fuse.CAP_EXPLICIT_INVAL_DATA, "EXPLICIT_INVAL_DATA", false, "5.2", "cached data may be dropped without need"},
	{fuse.CAP_ASYNC_READ, "ASYNC_READ", false, "2.6.20", "read-ahead waits for itself"},
	{fuse.CAP_ASYNC_DIO, "ASYNC_DIO", false, "3.13", "large O_DIRECT requests wait for their parts"},
	{fuse.CAP_MAX_PAGES, "MAX_PAGES", false, "4.20", "requests carry at most 128 KiB"},
	{fuse.CAP_SETXATTR_EXT, "SETXATTR_EXT", false, "5.12", "setting an ACL keeps set-group-id"},
	{fuse.CAP_IOCTL_DIR, "IOCTL_DIR", false, "3.1", "chattr does not work on directories"},
}

// aclCapabilities are asked for when ACLs are on: with them the umask is ours
// to apply, since a default ACL replaces it.
var aclCapabilities = []capability{
	{fuse.CAP_POSIX_ACL, "POSIX_ACL", false, "4.9", "ACLs are stored, but do not decide"},
	{fuse.CAP_DONT_MASK, "DONT_MASK", false, "2.6.32", "default ACLs are cut by the umask"},
}

// Negotiated says what was agreed with the kernel.
type Negotiated struct {
	Major, Minor uint32
	Agreed       []string // names of capabilities
	Missing      []string // "NAME: what is lost"
	MaxReadAhead uint32   // bytes
}

func (n *Negotiated) String() string {
	s := fmt.Sprintf("FUSE %d.%d: %s", n.Major, n.Minor, strings.Join(n.Agreed, " "))
	if len(n.Missing) > 0 {
		s += "; missing " + strings.Join(n.Missing, ", ")
	}
	return s
}

func wanted(acl bool) []capability {
	if acl {
		return slices.Concat(capabilities, aclCapabilities)
	}
	return capabilities
}

// negotiated compares what the kernel offered with what we asked for. What is
// offered and asked for is agreed. A missing required capability is an error.
func negotiated(k *fuse.InitIn, acl bool) (*Negotiated, error) {
	n := &Negotiated{Major: k.Major, Minor: k.Minor, MaxReadAhead: k.MaxReadAhead}
	offered := k.Flags64()
	for _, c := range wanted(acl) {
		switch {
		case offered&c.flag != 0:
			n.Agreed = append(n.Agreed, c.name)
		case c.required:
			return n, fmt.Errorf("the kernel's FUSE (protocol %d.%d) has no %s, which came with Linux %s", k.Major, k.Minor, c.name, c.since)
		default:
			n.Missing = append(n.Missing, c.name+": "+c.without)
		}
	}
	return n, nil
}
