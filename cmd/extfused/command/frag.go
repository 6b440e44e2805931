package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"extfused/blockdev"
	"extfused/cmd/extfused/daemon"
	"extfused/cmd/extfused/mounts"
	"extfused/fs/ext4"
	"extfused/fs/frag"
)

type fragOptions struct {
	json   bool
	offset string
}

// AddFlags registers the flags of `extfused frag`.
func (o *fragOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().StringVar(&o.offset, "offset", "0", "where in the image the file system starts, in bytes (or with K, M, G)")
}

func newFragCommand() *cobra.Command {
	o := &fragOptions{}
	cmd := &cobra.Command{
		Use:   "frag IMAGE|MOUNTPOINT [FILE...]",
		Short: "show how broken up free space and files are, or the extents of files",
		Long: "Without FILE: the runs of free blocks by length, the groups in use, files by the number of their extents,\n" +
			"and the share of non-contiguous files as e2fsck counts it. With FILE, a path from the root of the file system\n" +
			"(or below MOUNTPOINT): its extents, as filefrag -v shows them; FUSE has no way for filefrag itself.\n" +
			"An image is read only, without a daemon, and must not be in use; a mount is asked through its daemon.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Exitf(ExitUsage, "expected IMAGE|MOUNTPOINT [FILE...]; try: %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.OutOrStdout(), args[0], args[1:]) },
	}
	o.AddFlags(cmd)
	return cmd
}

// fragSource is what a mount or an image answers.
type fragSource interface {
	survey() (*frag.Report, error) // a report beside an error is not complete
	layout(path string) (*daemon.Layout, error)
}

func (o *fragOptions) run(w io.Writer, target string, files []string) error {
	src, done, err := o.open(target)
	if err != nil {
		return err
	}
	defer done()
	out := bufio.NewWriter(w)
	if len(files) == 0 {
		err = o.writeSurvey(out, src)
	} else {
		err = o.writeLayouts(out, src, files)
	}
	return errors.Join(err, out.Flush())
}

func (o *fragOptions) writeSurvey(w io.Writer, src fragSource) error {
	r, err := src.survey()
	switch {
	case r == nil:
		return err
	case o.json:
		return errors.Join(writeJSON(w, r), err)
	}
	return errors.Join(r.WriteText(w), err)
}

// writeLayouts goes on after a file that cannot be shown, and fails in the end.
func (o *fragOptions) writeLayouts(w io.Writer, src fragSource, files []string) (failed error) {
	list := []*daemon.Layout{}
	for _, path := range files {
		l, err := src.layout(path)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		list = append(list, l)
		if !o.json {
			if err := l.WriteText(w, l.BlockSize); err != nil {
				return err
			}
		}
	}
	if o.json {
		failed = errors.Join(failed, writeJSON(w, list))
	}
	return failed
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(v)
}

// open tells a mountpoint, which is a directory, from an image.
func (o *fragOptions) open(target string) (src fragSource, done func(), err error) {
	if st, err := os.Stat(target); err != nil || !st.IsDir() {
		return o.openImage(target)
	}
	m, err := findMount(target)
	if err != nil {
		return nil, nil, err
	}
	if err := writeBack(m.Point); err != nil { // or new files have no blocks yet
		return nil, nil, Exitf(ExitFailure, "%s: %w", target, err)
	}
	return &fragMount{target, m}, func() {}, nil
}

// fragMount asks the daemon of a mount.
type fragMount struct {
	path string
	m    *mounts.Mount
}

func (f *fragMount) survey() (*frag.Report, error) {
	r := new(frag.Report)
	if err := ask(f.path, "frag", nil, r); err != nil {
		return nil, err
	}
	return r, nil
}

func (f *fragMount) layout(path string) (*daemon.Layout, error) {
	inside := path
	if rest, ok := strings.CutPrefix(filepath.Clean(path), f.m.Point); ok && (rest == "" || rest[0] == '/') {
		inside = rest
	}
	l := new(daemon.Layout)
	err := ask(f.path, "layout", map[string]string{"path": inside}, l)
	l.Path = path
	return l, err
}

// fragImage reads an image by a read-only mount in this process.
type fragImage struct{ fs *ext4.FS }

func (o *fragOptions) openImage(path string) (src fragSource, done func(), err error) {
	offset, err := parseSize(o.offset)
	if err != nil {
		return nil, nil, Exitf(ExitUsage, "--offset: %w", err)
	}
	whole, err := blockdev.OpenFile(path, blockdev.OpenOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, imageExit(err)
	}
	dev := whole
	if offset != 0 {
		if dev, err = blockdev.NewSection(whole, offset, whole.Size()-offset); err != nil {
			whole.Close()
			return nil, nil, Exitf(ExitUsage, "--offset %s: the image has %d bytes", o.offset, whole.Size())
		}
	}
	fs, err := ext4.Mount(dev, ext4.Options{ReadOnly: true})
	if err != nil {
		whole.Close()
		return nil, nil, imageExit(fmt.Errorf("%s: %w", path, err))
	}
	return &fragImage{fs}, func() {
		fs.Unmount(context.Background())
		whole.Close()
	}, nil
}

func (f *fragImage) survey() (*frag.Report, error) {
	r, err := frag.Survey(f.fs, func() error { return nil })
	if err == nil && f.fs.Stats().Corruptions > 0 {
		return r, Exitf(ExitNotExt4, "the image is damaged, and what is damaged was left out: run e2fsck")
	}
	return r, err
}

func (f *fragImage) layout(path string) (*daemon.Layout, error) {
	file, err := frag.Lookup(f.fs, path)
	if err != nil {
		return nil, err
	}
	return &daemon.Layout{BlockSize: f.fs.Statfs().BlockSize, File: *file}, nil
}
