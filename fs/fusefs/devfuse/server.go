package devfuse

import (
	"errors"
	"fmt"
	"log"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Server serves one mount.
type Server struct {
	*conn
	// Offered is what the kernel said of itself in INIT.
	Offered fuse.InitIn

	mountpoint string
}

// overhead is more than any request or answer has besides its data, in bytes:
// headers, a name or two of the longest, an extension with groups.
const overhead = 64 << 10

// Mount mounts at the directory mountpoint, which answers once Serve runs.
// Requests are parsed and served by ps, whose data is at most maxData bytes;
// h does the rest.
func Mount(mountpoint string, ps *fuse.ProtocolServer, h Handler, maxData int, c Config) (*Server, error) {
	logger := c.Logger
	if logger == nil {
		logger = log.Default()
	}
	fd, err := c.attach(mountpoint)
	if err != nil {
		return nil, err
	}
	s := &Server{conn: newConn(fd, ps, h, maxData, logger), mountpoint: mountpoint}
	if err := s.init(); err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: %w", mountpoint, err), s.Abandon())
	}
	return s, nil
}

// init answers the first request, which says what the kernel can do.
func (s *Server) init() error {
	buf := s.bufs.get()
	defer s.bufs.put(buf)
	n, ok := s.read(buf)
	if !ok || opcode(buf[:n]) != opInit || n < int(unsafe.Offsetof(s.Offered.Flags2)) {
		return errors.New("the kernel does not begin with FUSE_INIT")
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&s.Offered)), unsafe.Sizeof(s.Offered)), buf[:n])
	newReader(s.conn).handle(buf[:n])
	return nil
}

// Serve serves until the mount is gone.
func (s *Server) Serve() {
	s.serve()
	unix.Close(s.fd)
}

// Abandon takes down a mount that is not going to be served.
func (s *Server) Abandon() error {
	err := detach(s.mountpoint)
	unix.Close(s.fd) // aborts the connection
	return err
}
