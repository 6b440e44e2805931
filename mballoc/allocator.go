package mballoc

import "errors"

var errUnfinished = errors.New("mballoc: being written")

type InodeState struct{}
type Tunables struct{}
type Allocator struct{}

func DefaultTunables(geo Geometry) Tunables                                      { return Tunables{} }
func New(geo Geometry, r GroupReader, o Options) (*Allocator, error)             { return nil, errUnfinished }
func (a *Allocator) Allocate(m Marker, r *Request) (Result, error)               { return Result{}, errUnfinished }
func (a *Allocator) Free(m Marker, start Cluster, n uint32, f FreeFlags) error   { return errUnfinished }
func (a *Allocator) Committed(tid uint32, discard func(start Cluster, n uint32)) {}
func (a *Allocator) DiscardInode(s *InodeState)                                  {}
func (a *Allocator) DiscardAll() uint64                                          { return 0 }
func (a *Allocator) FreeClusters() uint64                                        { return 0 }
func (a *Allocator) AvailableClusters() uint64                                   { return 0 }
func (a *Allocator) PendingClusters() uint64                                     { return 0 }
func (a *Allocator) SetReserved(root, reserved uint64)                           {}
func (a *Allocator) Warm(g GroupNumber) error                                    { return errUnfinished }
func (a *Allocator) Trim(from, n, minLen uint64, fn func(Cluster, uint32) error) (uint64, error) {
	return 0, errUnfinished
}
func (a *Allocator) Set(name, value string) error    { return errUnfinished }
func (a *Allocator) Get(name string) (string, error) { return "", errUnfinished }
func (a *Allocator) Names() []string                 { return nil }
