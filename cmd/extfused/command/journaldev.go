package command

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"extfused/blockdev"
	"extfused/cmd/extfused/daemon"
	"extfused/fs/ext4"
)

// findJournal looks for the device of an external journal that no option names:
// under the device number that the superblock remembers, by UUID in /dev/disk, and
// on all block devices; whatever it finds has the journal's UUID. An image that
// cannot be read, or a journal that is nowhere, is the mount's to tell of.
func findJournal(c *daemon.Config) {
	if c.JournalPath != "" || c.FS.NoLoad {
		return
	}
	j, ok := wantedJournal(c)
	if !ok {
		return
	}
	for _, path := range journalCandidates(j) {
		dev, err := blockdev.OpenFile(path, blockdev.OpenOptions{ReadOnly: true, NoLock: true})
		if err != nil {
			continue
		}
		is := j.Is(dev)
		dev.Close()
		if is {
			c.JournalPath = path
			return
		}
	}
}

// wantedJournal is the external journal of the image, if it has one.
func wantedJournal(c *daemon.Config) (j ext4.ExternalJournal, ok bool) {
	dev, err := blockdev.OpenFile(c.Image, blockdev.OpenOptions{ReadOnly: true, NoLock: true})
	if err != nil {
		return j, false
	}
	defer dev.Close()
	part := dev
	if c.Offset > 0 && c.Offset < dev.Size() {
		if part, err = blockdev.NewSection(dev, c.Offset, dev.Size()-c.Offset); err != nil {
			return j, false
		}
	}
	j, ok, err = ext4.FindExternalJournal(part, c.FS)
	return j, ok && err == nil
}

func journalCandidates(j ext4.ExternalJournal) (paths []string) {
	if path, err := devicePath(j.Dev); err == nil {
		paths = append(paths, path)
	}
	paths = append(paths, filepath.Join("/dev/disk/by-uuid", j.String()))
	all, _ := filepath.Glob("/sys/class/block/*")
	for _, p := range all {
		paths = append(paths, filepath.Join("/dev", strings.ReplaceAll(filepath.Base(p), "!", "/")))
	}
	return paths
}

// devicePath is the block device with a number in the kernel's 32-bit encoding
// (new_encode_dev): minor in bits 0-7 and 20-31, major in bits 8-19.
func devicePath(n uint32) (string, error) {
	major, minor := n>>8&0xfff, n&0xff|n>>12&0xfff00
	f, err := os.Open(fmt.Sprintf("/sys/dev/block/%d:%d/uevent", major, minor))
	if err != nil {
		return "", fmt.Errorf("there is no block device %d:%d", major, minor)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if name, ok := strings.CutPrefix(sc.Text(), "DEVNAME="); ok {
			return filepath.Join("/dev", name), nil
		}
	}
	return "", fmt.Errorf("block device %d:%d has no name", major, minor)
}
