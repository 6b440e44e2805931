package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Handler answers one command. What it returns is the answer's data, encoded
// as JSON.
type Handler func(args map[string]string) (any, error)

// Server listens for one mount.
type Server struct {
	path     string
	listener net.Listener
	handlers map[string]Handler
	wg       sync.WaitGroup

	mu struct {
		sync.Mutex
		// +checklocks:Mutex
		conns map[net.Conn]struct{}
		// +checklocks:Mutex
		done bool
	}
}

// Listen makes the socket of the mount with device number dev. Serve answers.
func Listen(dev string, handlers map[string]Handler) (*Server, error) {
	dir, err := makeDir(os.Getuid())
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{path: filepath.Join(dir, socketName(dev)), handlers: handlers}
	s.mu.conns = map[net.Conn]struct{}{}
	os.Remove(s.path) // left by a daemon that died; the number is ours now
	s.listener, err = net.Listen("unix", s.path)
	if err == nil {
		err = os.Chmod(s.path, 0o600) // the directory kept everybody out meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return s, nil
}

// Path is where the socket is.
func (s *Server) Path() string { return s.path }

// Serve answers until Close.
func (s *Server) Serve() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		if !s.enter(conn) {
			conn.Close()
			return
		}
		s.wg.Go(func() {
			defer s.leave(conn)
			s.talk(conn)
		})
	}
}

func (s *Server) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.done {
		return false
	}
	s.mu.conns[conn] = struct{}{}
	return true
}

func (s *Server) leave(conn net.Conn) {
	s.mu.Lock()
	delete(s.mu.conns, conn)
	s.mu.Unlock()
	conn.Close()
}

func (s *Server) talk(conn net.Conn) {
	dec, enc := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var r Request
		if dec.Decode(&r) != nil {
			return
		}
		if enc.Encode(s.answer(&r)) != nil {
			return
		}
	}
}

func (s *Server) answer(r *Request) *Response {
	h, ok := s.handlers[r.Command]
	if !ok {
		return &Response{Error: fmt.Sprintf("unknown command %q", r.Command)}
	}
	data, err := h(r.Args)
	if err != nil {
		resp := &Response{Error: err.Error()}
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			resp.Errno = int(errno)
		}
		return resp
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return &Response{Error: err.Error()}
	}
	return &Response{OK: true, Data: raw}
}

// Close removes the socket and ends the connections that wait for a request;
// those being answered get their answer.
func (s *Server) Close() {
	s.listener.Close() // removes the socket
	s.mu.Lock()
	s.mu.done = true
	for conn := range s.mu.conns {
		if c, ok := conn.(*net.UnixConn); ok {
			c.CloseRead()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}
