package fusefs

import (
	"fmt"
	"log"
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// MountConfig says how a FileSystem is mounted through /dev/fuse.
type MountConfig struct {
	Source     string   // shown as what is mounted: the image's path
	AllowOther bool     // every user may come in; permission bits decide
	ACL        bool     // POSIX ACLs decide too
	IDMapped   bool     // the mount may be mounted again with other ids
	Flags      uintptr  // MS_... flags of mount(2), when root mounts
	Options    []string // the same in words for fusermount3, when others do
	Debug      bool     // log every request
	Logger     *log.Logger
}

// MaxRequest is the most data a READ or WRITE carries, and the read-ahead, in
// bytes. go-fuse lowers it to what the kernel allows.
const MaxRequest = 1 << 20

// maxBackground bounds the kernel's requests in flight that nobody waits for:
// read-ahead and write-back.
const maxBackground = 64

// Subtype makes the type of the mount "fuse.extfused".
const Subtype = "extfused"

// Server serves one mount.
type Server struct {
	*fuse.Server
	Negotiated *Negotiated
}

// Mount mounts f at the directory mountpoint. The mount answers once Serve
// runs, which returns when the mount is gone.
//
// Root mounts by itself; other users go through fusermount3.
func Mount(f *FileSystem, mountpoint string, c MountConfig) (*Server, error) {
	s, err := fuse.NewServer(f, mountpoint, c.fuseOptions())
	if err != nil {
		return nil, err
	}
	n, err := negotiated(s.KernelSettings(), c.ACL)
	if err != nil {
		go s.Serve() // answers what the unmount needs
		s.Unmount()
		return nil, fmt.Errorf("mount %s: %w", mountpoint, err)
	}
	return &Server{Server: s, Negotiated: n}, nil
}

func (c *MountConfig) fuseOptions() *fuse.MountOptions {
	o := &fuse.MountOptions{
		AllowOther: c.AllowOther, FsName: c.Source, Name: Subtype,
		Options:       []string{"default_permissions"},
		MaxBackground: maxBackground, CongestionThreshold: maxBackground * 3 / 4,
		MaxWrite: MaxRequest, MaxReadAhead: MaxRequest,
		EnableSymlinkCaching: true, ExplicitDataCacheControl: true, EnableAcl: c.ACL, IDMappedMount: c.IDMapped,
		Debug: c.Debug, Logger: c.Logger,
		DirectMountStrict: os.Geteuid() == 0, DirectMountFlags: c.Flags,
	}
	if !o.DirectMountStrict {
		o.Options = append(o.Options, c.Options...)
	}
	if o.DirectMountFlags == 0 {
		o.DirectMountFlags = msMgcVal // no flags at all, rather than go-fuse's defaults
	}
	for _, w := range wanted(c.ACL) {
		o.ExtraCapabilities |= w.flag
	}
	return o
}

// msMgcVal is MS_MGC_VAL, which the kernel ignores; see mount(2).
const msMgcVal = 0xC0ED0000
