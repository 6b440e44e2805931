package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"extfused/fs/mkfs"
	"extfused/fs/ondisk"
)

// params turns flags into parameters. Features come before what depends on
// them, and sizes before extended options that count blocks.
func (o *mkfsOptions) params() (mkfs.Params, error) {
	p := mkfs.DefaultParams()
	p.Label, p.ReservedPercent, p.Inodes, p.BlocksPerGroup, p.FlexGroups = o.label, o.reserved, o.inodes, o.groupSize, o.flexGroups
	steps := []func(*mkfs.Params) error{o.setFeatures, o.setSizes, o.setIdentity, o.setJournal, o.setExtended, mountable}
	for _, step := range steps {
		if err := step(&p); err != nil {
			return p, Exitf(ExitUsage, "%w", err)
		}
	}
	return p, nil
}

func (o *mkfsOptions) setFeatures(p *mkfs.Params) error {
	if err := p.SetType(o.kind); err != nil {
		return fmt.Errorf("-t: %w", err)
	}
	switch o.revision {
	case 0:
		p.SetRevision0()
	case 1:
	default:
		return fmt.Errorf("-r %d: there are revisions 0 and 1", o.revision)
	}
	for _, list := range o.features {
		if err := p.EditFeatures(list); err != nil {
			return fmt.Errorf("-O: %w", err)
		}
	}
	return nil
}

// sizeFlag is a flag that takes a size, and where that goes.
type sizeFlag struct {
	flag, text string
	set        func(int64)
}

func (o *mkfsOptions) setSizes(p *mkfs.Params) error {
	small := func(to *int) func(int64) { return func(n int64) { *to = int(min(n, 1<<30)) } }
	for _, f := range []sizeFlag{
		{"-s", o.size, func(n int64) { p.Size = n }},
		{"-i", o.ratio, func(n int64) { p.BytesPerInode = n }},
		{"-b", o.blockSize, small(&p.BlockSize)},
		{"-C", o.clusterSize, small(&p.ClusterSize)},
		{"-I", o.inodeSize, small(&p.InodeSize)},
	} {
		if f.text == "" {
			continue
		}
		n, err := mkfs.ParseBytes(f.text)
		if err == nil && n == 0 {
			err = errors.New("must not be 0")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.flag, err)
		}
		f.set(n)
	}
	return nil
}

func (o *mkfsOptions) setIdentity(p *mkfs.Params) (err error) {
	if o.uuid != "" {
		if p.UUID, err = ondisk.ParseUUID(o.uuid); err != nil {
			return fmt.Errorf("-U: %w", err)
		}
	}
	if o.timestamp != "" {
		sec, err := strconv.ParseInt(o.timestamp, 10, 64)
		if err != nil || sec < ondisk.MinTimeSec || sec > ondisk.MaxTimeSecExtra {
			return fmt.Errorf("--timestamp %s: want seconds since 1970", o.timestamp)
		}
		p.Time = time.Unix(sec, 0)
	}
	return nil
}

func (o *mkfsOptions) setJournal(p *mkfs.Params) error {
	if o.journal == "" {
		return nil
	}
	for _, item := range strings.Split(o.journal, ",") {
		name, value, _ := strings.Cut(item, "=")
		var to *int64
		unit, suffix := 0, ""
		switch name {
		case "size":
			to, unit, suffix = &p.JournalBytes, 20, "M"
		case "fast_commit_size":
			to, unit, suffix = &p.FastCommitBytes, 10, "K"
		default:
			return fmt.Errorf("-J %s: only size= and fast_commit_size= are known", item)
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(strings.ToUpper(value), suffix), 10, 32)
		if err != nil || n == 0 {
			return fmt.Errorf("-J %s: want a number", item)
		}
		*to = int64(n) << unit
	}
	return nil
}

func (o *mkfsOptions) setExtended(p *mkfs.Params) error {
	for _, list := range o.extended {
		if err := p.EditExtended(list); err != nil {
			return fmt.Errorf("-E: %w", err)
		}
	}
	return nil
}

// mountable refuses what a mount would refuse, or take read-only.
func mountable(p *mkfs.Params) error {
	refuse, readOnly := p.Features.Unsupported()
	if all := append(refuse, readOnly...); len(all) > 0 {
		return fmt.Errorf("extfused does not write to file systems with %s: they are not made", strings.Join(all, ", "))
	}
	return nil
}
