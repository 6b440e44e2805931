package fusefs

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/fusefs/devfuse"
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

	// BlockDevice mounts as fuseblk: sync(2) reaches us, and umount(2) waits
	// for Destroy. Source is a block device that nobody holds exclusively.
	BlockDevice bool
	// Destroy is told by umount(2) of a fuseblk mount that nothing more comes.
	Destroy func()
}

// MaxRequest is the most data a READ or WRITE carries, and the read-ahead, in
// bytes; the kernel may allow less.
const MaxRequest = 1 << 20

// maxBackground bounds the kernel's requests in flight that nobody waits for:
// read-ahead and write-back.
const maxBackground = 64

// Subtype makes the type of the mount "fuse.extfused".
const Subtype = "extfused"

// Server serves one mount.
type Server struct {
	f          *FileSystem
	s          *devfuse.Server
	destroy    func()
	Negotiated *Negotiated
}

// Mount mounts f at the directory mountpoint. The mount answers once Serve
// runs, which returns when the mount is gone.
//
// Root mounts by itself; other users go through fusermount3.
func Mount(f *FileSystem, mountpoint string, c MountConfig) (*Server, error) {
	srv := &Server{f: f, destroy: c.Destroy}
	o := c.fuseOptions()
	var err error
	srv.s, err = devfuse.Mount(mountpoint, fuse.NewProtocolServer(f, o), srv, o.MaxWrite, devfuse.Config{
		Source: c.Source, Subtype: Subtype, AllowOther: c.AllowOther, Flags: c.Flags, Options: c.Options,
		MaxRead: o.MaxWrite, BlockDevice: c.BlockDevice, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	srv.Negotiated, err = negotiated(&srv.s.Offered, c.ACL)
	if err != nil {
		srv.s.Abandon()
		return nil, fmt.Errorf("mount %s: %w", mountpoint, err)
	}
	if srv.s.Offered.SupportsNotify(fuse.NOTIFY_INVAL_INODE) {
		f.notify = srv.s
	}
	f.forgets.start()
	return srv, nil
}

// Serve serves until the mount is gone.
func (s *Server) Serve() {
	s.s.Serve()
	s.f.OnUnmount()
}

// SyncFS answers sync(2) and syncfs(2), of which only a fuseblk mount tells.
func (s *Server) SyncFS() error {
	s.f.forgets.drain()
	return s.f.fs.Sync()
}

// Destroy is told that umount(2) has taken a fuseblk mount down, and waits.
func (s *Server) Destroy() {
	s.f.OnUnmount()
	if s.destroy != nil {
		s.destroy()
	}
}

func (c *MountConfig) fuseOptions() *fuse.MountOptions {
	o := &fuse.MountOptions{
		MaxBackground: maxBackground, CongestionThreshold: maxBackground * 3 / 4,
		MaxWrite: min(MaxRequest, maxPages()*os.Getpagesize()), MaxReadAhead: MaxRequest,
		EnableSymlinkCaching: true, ExplicitDataCacheControl: true, EnableAcl: c.ACL, IDMappedMount: c.IDMapped,
		Debug: c.Debug, Logger: c.Logger,
	}
	for _, w := range wanted(c.ACL) {
		o.ExtraCapabilities |= w.flag
	}
	return o
}

// maxPages is the kernel's bound on the pages of a request; see
// fs.fuse.max_pages_limit, which came with Linux 6.13.
func maxPages() int {
	const before = 256
	text, err := os.ReadFile("/proc/sys/fs/fuse/max_pages_limit")
	if err != nil {
		return before
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n <= 0 {
		return before
	}
	return n
}
