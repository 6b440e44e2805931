package metrics

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// AddressError is an address that cannot be listened on.
type AddressError struct {
	Addr string
	Err  error
}

func (e *AddressError) Error() string {
	if errors.Is(e.Err, syscall.EADDRINUSE) {
		return fmt.Sprintf("metrics address %s is in use: choose another with --metrics", e.Addr)
	}
	return fmt.Sprintf("cannot serve metrics on %s: %v", e.Addr, e.Err)
}

func (e *AddressError) Unwrap() error { return e.Err }

// gate lets readers in while there is something to read: Close waits until
// they have left, so that nobody reads from a file system being unmounted.
type gate struct {
	mu sync.RWMutex
	// +checklocks:mu
	src *Sources
}

// enter returns nil while the gate is closed; else leave must be called.
//
// +checklocksignore: leave unlocks
func (g *gate) enter() (src *Sources, leave func()) {
	g.mu.RLock()
	if g.src == nil {
		g.mu.RUnlock()
		return nil, nil
	}
	return g.src, g.mu.RUnlock
}

func (g *gate) set(s *Sources) {
	g.mu.Lock()
	g.src = s
	g.mu.Unlock()
}

// Server serves HTTP on one address.
type Server struct {
	listener net.Listener
	gate     gate
	http     http.Server
}

// Listen takes the address, so that a mistake shows early. Serve answers.
func Listen(addr string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, &AddressError{addr, err}
	}
	return &Server{listener: l}, nil
}

// Addr is the address listened on, with the port that the system chose for 0.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve begins to answer.
func (s *Server) Serve(src Sources) {
	s.gate.set(&src)
	s.http = http.Server{Handler: s.mux(), ReadHeaderTimeout: 10 * time.Second}
	go s.http.Serve(s.listener)
}

// Close stops; no handler reads from the sources when it returns.
func (s *Server) Close() {
	s.listener.Close()
	s.http.Close()
	s.gate.set(nil)
}

// Handler serves src without a network; for tests.
func Handler(src Sources) http.Handler {
	s := &Server{}
	s.gate.set(&src)
	return s.mux()
}

func (s *Server) mux() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(&s.gate), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", s.view("text/html; charset=utf-8", statusPage))
	for _, v := range Views {
		mux.HandleFunc("GET /views/"+v.Name, s.view("text/plain; charset=utf-8", v.Write))
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
