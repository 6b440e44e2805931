// Command floor mounts a minimal in-memory file system on go-fuse. It does no
// allocation, keeps no journal and writes nothing: it answers as fast as
// go-fuse can, with the same FUSE settings as extfused, and so is the lower
// bound that `make bench` compares extfused with.
//
//	floor [-stats FILE] MOUNTPOINT
//
// It runs until the mount is gone. On SIGUSR1 it writes the number of requests
// by operation to FILE as JSON.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	stats := flag.String("stats", "", "file for the request counts, written on SIGUSR1 and at the end")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: floor [-stats FILE] MOUNTPOINT")
	}
	debug.SetGCPercent(400)
	fs := newFloor()
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1) // before anybody sees the mount
	srv, err := fuse.NewServer(fs, flag.Arg(0), &fuse.MountOptions{
		FsName:                   "floor",
		Name:                     "floor",
		AllowOther:               os.Geteuid() == 0,
		DirectMount:              true,
		MaxWrite:                 1 << 20,
		MaxReadAhead:             1 << 20,
		MaxBackground:            64,
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		Options:                  []string{"default_permissions"},
		ExtraCapabilities: fuse.CAP_WRITEBACK_CACHE | fuse.CAP_ATOMIC_O_TRUNC |
			fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_ASYNC_DIO,
	})
	if err != nil {
		log.Fatalf("floor: %v", err)
	}
	if *stats != "" {
		go func() {
			for range c {
				fs.dump(*stats)
			}
		}()
	}
	srv.Serve()
	if *stats != "" {
		fs.dump(*stats)
	}
}

// dump writes the counts under a temporary name first, so that a reader never
// sees half of them.
func (f *floor) dump(path string) {
	b, err := json.Marshal(f.counts.snapshot())
	if err != nil {
		log.Printf("floor: %v", err)
		return
	}
	if err := os.WriteFile(path+".tmp", b, 0o644); err != nil {
		log.Printf("floor: %v", err)
		return
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		log.Printf("floor: %v", err)
	}
}
