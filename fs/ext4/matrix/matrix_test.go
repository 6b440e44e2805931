package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"extfused/blockdev"
	"extfused/fs/ext4"
	"extfused/fs/ext4/ext4test"
)

// row is an image: a line of Rows.
type row struct{ args string }

// image makes the row's image.
func (r row) image(t *testing.T) string {
	t.Helper()
	return ext4test.Mke2fs(t, Size, strings.Fields(r.args)...)
}

// limits of a row's image: without an index a large directory takes the
// kernel, too, a time that grows with the square of its names.
func (r row) limits(t *testing.T, image string) limits {
	t.Helper()
	l := limits{blockSize: int(ext4test.Dumpe2fsInt(t, image, "Block size")), names: 20000, value: 700}
	if testing.Short() {
		l.names = 1500
	}
	features := strings.Fields(ext4test.Dumpe2fs(t, image, "Filesystem features"))
	if !slices.Contains(features, "dir_index") {
		l.names = min(l.names, 3000)
	}
	if ext4test.Dumpe2fsInt(t, image, "Free inodes") < 4000 {
		l.names = min(l.names, 1500)
	}
	if slices.Contains(features, "ea_inode") {
		l.value = 10000
	}
	return l
}

// errNotYet marks what a mount refuses, saying so.
var errNotYet = errors.New("not supported yet")

// withMount mounts the image here and calls fn.
func withMount(t *testing.T, image string, fn func(ours) error) error {
	t.Helper()
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{})
	if err != nil {
		return err
	}
	defer dev.Close()
	fs, err := ext4.Mount(dev, ext4.Options{Logf: func(l ext4.Level, format string, args ...any) {
		if l >= ext4.LevelWarn {
			t.Logf(format, args...)
		}
	}})
	if errors.Is(err, ext4.ErrUnsupported) || errors.Is(err, ext4.ErrReadOnly) {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	if err != nil {
		return err
	}
	err = fn(ours{fs})
	if uerr := fs.Unmount(context.Background()); err == nil {
		err = uerr
	}
	if errors.Is(err, syscall.EOPNOTSUPP) {
		err = fmt.Errorf("%w: %w", errNotYet, err)
	}
	return err
}

// expect compares a tree with the model.
func expect(t *testing.T, who string, m *model, got []string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", who, err)
	}
	want := m.lines()
	shown := 0
	for _, l := range want {
		if _, ok := slices.BinarySearch(got, l); !ok && shown < 5 {
			t.Errorf("%s does not see %.200q", who, l)
			shown++
		}
	}
	for _, l := range got {
		if _, ok := slices.BinarySearch(want, l); !ok && shown < 10 {
			t.Errorf("%s sees %.200q", who, l)
			shown++
		}
	}
}

// hereThenThere runs the workload here and lets the kernel look at it and
// change it, before it comes back.
func (r row) hereThenThere(t *testing.T) error {
	image := r.image(t)
	l := r.limits(t, image)
	m := newModel()
	err := withMount(t, image, func(o ours) error {
		b := &both{t: o, m: m}
		first(b, l)
		return b.err
	})
	if err != nil {
		return err
	}
	ext4test.Fsck(t, image)
	look := func() error {
		return withMount(t, image, func(o ours) error {
			got, err := o.lines()
			expect(t, "a new mount", m, got, err)
			return nil
		})
	}
	if err := look(); err != nil {
		return err
	}
	ext4test.Fsck(t, image)
	r.inKernel(t, image, func(k kernel) error {
		got, err := k.lines()
		expect(t, "the kernel", m, got, err)
		b := &both{t: k, m: m}
		second(b, l)
		return b.err
	})
	ext4test.Fsck(t, image)
	return look()
}

// thereThenHere lets the kernel run the workload.
func (r row) thereThenHere(t *testing.T) error {
	image := r.image(t)
	l := r.limits(t, image)
	m := newModel()
	if !r.inKernel(t, image, func(k kernel) error {
		b := &both{t: k, m: m}
		first(b, l)
		return b.err
	}) {
		return nil
	}
	err := withMount(t, image, func(o ours) error {
		got, err := o.lines()
		expect(t, "a mount of the kernel's image", m, got, err)
		b := &both{t: o, m: m}
		second(b, l)
		return b.err
	})
	if err != nil {
		return err
	}
	ext4test.Fsck(t, image)
	r.inKernel(t, image, func(k kernel) error {
		got, err := k.lines()
		expect(t, "the kernel", m, got, err)
		return nil
	})
	return nil
}

// inKernel runs fn on a mount of the kernel; false where there is none, as with
// blocks larger than a page.
func (r row) inKernel(t *testing.T, image string, fn func(kernel) error) (mounted bool) {
	t.Helper()
	ok := t.Run("kernel", func(t *testing.T) {
		ext4test.KernelMount(t, image, "", func(dir string) {
			mounted = true
			if err := fn(kernel{dir}); err != nil {
				t.Error(err)
			}
		})
	})
	return mounted && ok
}

// TestMatrix: every row is mounted, changed, left clean, and understood by the
// kernel, both ways; or it says what is missing. With -short the large directory
// is a tenth of its size.
func TestMatrix(t *testing.T) {
	all := Rows()
	if len(all) < 60 {
		t.Fatalf("only %d rows", len(all))
	}
	var started, done, open atomic.Int32
	t.Run("rows", func(t *testing.T) {
		for _, args := range all {
			r := row{args}
			t.Run(args, func(t *testing.T) {
				t.Parallel()
				started.Add(1)
				for what, run := range map[string]func(*testing.T) error{"here first": r.hereThenThere, "kernel first": r.thereThenHere} {
					err := run(t)
					switch {
					case errors.Is(err, errNotYet):
						open.Add(1)
						fmt.Fprintf(os.Stderr, "matrix: mke2fs %s: %v\n", r.args, err)
						t.Skip(err)
					case err != nil:
						t.Errorf("%s: %v", what, err)
					}
				}
				done.Add(1)
			})
		}
	})
	t.Logf("%d rows, of which %d run and %d are not supported yet", len(all), done.Load(), open.Load())
	if n := done.Load(); n < 40 && started.Load() == int32(len(all)) {
		t.Errorf("only %d rows run", n)
	}
}
