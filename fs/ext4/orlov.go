package ext4

import "extfused/fs/ondisk"

// Where a new inode goes. Files and directories follow their parent, so that
// what is used together lies together; directories are spread when their
// parent's neighbourhood fills up (Orlov's scheme), those in the root always.

// findGroup chooses the group to look for a free inode first; false: there
// is no free inode anywhere.
func (fs *FS) findGroup(dir *Inode, isDir bool) (ondisk.GroupNumber, bool) {
	parent := ondisk.GroupNumber(0)
	if dir != nil {
		parent, _ = fs.groupOf(dir.ino)
	}
	if isDir {
		return fs.findGroupOrlov(dir, parent)
	}
	if fs.flexBits > 0 {
		return fs.findGroupFlex(dir, parent)
	}
	return fs.findGroupFlat(dir, parent)
}

// orlovNeed is what a flex group must have to take another directory.
type orlovNeed struct{ maxDirs, minInodes, minClusters int64 }

// orlovNeed derives the bounds from the averages; the slack scales with the
// size of a flex group, otherwise large flex groups would be left as soon as
// they have a few directories more than others.
func (fs *FS) orlovNeed() orlovNeed {
	n := int64(len(fs.flex))
	size := int64(1) << fs.flexBits
	return orlovNeed{
		maxDirs:     fs.usedDirs.Load()/n + int64(fs.inodesPerGroup)*size/16,
		minInodes:   max(fs.freeInodes.Load()/n-int64(fs.inodesPerGroup)*size/4, 1),
		minClusters: fs.freeClusters.Load()/n - int64(fs.clustersPerGroup)*size/4,
	}
}

// findGroupOrlov places a directory.
func (fs *FS) findGroupOrlov(dir *Inode, parent ondisk.GroupNumber) (ondisk.GroupNumber, bool) {
	var flex uint32
	var ok bool
	if dir == nil || dir.ino == RootIno || dir.raw.Flags&ondisk.InodeTopdir != 0 {
		flex, ok = fs.emptiestFlex()
	} else {
		start := uint32(parent)
		if last := dir.lastAllocGroup.Load(); last != 0 {
			start = last - 1
		}
		flex, ok = fs.nearFlex(start >> fs.flexBits)
	}
	if ok {
		if g, ok := fs.groupInFlex(flex); ok {
			return g, true
		}
	}
	return fs.anyGroup(parent)
}

// emptiestFlex spreads the directories of the root: of the flex groups that
// are no fuller than average, the one with the fewest directories, starting
// from a random place.
func (fs *FS) emptiestFlex() (uint32, bool) {
	n := uint32(len(fs.flex))
	avgInodes := fs.freeInodes.Load() / int64(n)
	avgClusters := fs.freeClusters.Load() / int64(n)
	best, bestDirs, found := uint32(0), int64(fs.inodesPerGroup)<<fs.flexBits, false
	at := fs.random() % n
	for k := uint32(0); k < n; k++ {
		f := &fs.flex[at]
		dirs := f.usedDirs.Load()
		if f.freeInodes.Load() > 0 && dirs < bestDirs && f.freeInodes.Load() >= avgInodes && f.freeClusters.Load() >= avgClusters {
			best, bestDirs, found = at, dirs, true
		}
		if at++; at == n {
			at = 0
		}
	}
	return best, found
}

// nearFlex is the first flex group from start on that can take another
// directory.
func (fs *FS) nearFlex(start uint32) (uint32, bool) {
	need := fs.orlovNeed()
	n := uint32(len(fs.flex))
	at := start % n
	for k := uint32(0); k < n; k++ {
		f := &fs.flex[at]
		if f.usedDirs.Load() < need.maxDirs && f.freeInodes.Load() >= need.minInodes && f.freeClusters.Load() >= need.minClusters {
			return at, true
		}
		if at++; at == n {
			at = 0
		}
	}
	return 0, false
}

// groupInFlex is the first group of a flex group with a free inode.
func (fs *FS) groupInFlex(flex uint32) (ondisk.GroupNumber, bool) {
	first := ondisk.GroupNumber(flex) << fs.flexBits
	last := min(uint64(first)+1<<fs.flexBits, uint64(fs.groupCount))
	for g := first; uint64(g) < last; g++ {
		if fs.hasFreeInode(g) {
			return g, true
		}
	}
	return 0, false
}

func (fs *FS) hasFreeInode(g ondisk.GroupNumber) bool {
	gr := &fs.groups[g]
	return gr.freeInodes.Load() > 0 && !gr.badInodes.Load()
}

// anyGroup is the last resort: the first group from parent on with at least
// the average of free inodes, or else with any.
func (fs *FS) anyGroup(parent ondisk.GroupNumber) (ondisk.GroupNumber, bool) {
	avg := fs.freeInodes.Load() / int64(fs.groupCount)
	for _, least := range []int64{max(avg, 1), 1} {
		g := parent
		for n := ondisk.GroupNumber(0); n < fs.groupCount; n++ {
			if int64(fs.groups[g].freeInodes.Load()) >= least && !fs.groups[g].badInodes.Load() {
				return g, true
			}
			if g++; g == fs.groupCount {
				g = 0
			}
		}
	}
	return 0, false
}

// findGroupFlex places anything but a directory: in its parent's flex group;
// when that is full, where the parent's last children went; and then in a
// flex group that Orlov's scheme finds, which the parent remembers.
func (fs *FS) findGroupFlex(dir *Inode, parent ondisk.GroupNumber) (ondisk.GroupNumber, bool) {
	if g, ok := fs.groupInFlex(uint32(parent) >> fs.flexBits); ok {
		return g, true
	}
	if dir == nil {
		return fs.anyGroup(parent)
	}
	if last := dir.lastAllocGroup.Load(); last != 0 {
		if g, ok := fs.groupInFlex((last - 1) >> fs.flexBits); ok {
			return g, true
		}
	}
	flex, ok := fs.nearFlex(uint32(parent)>>fs.flexBits + 1)
	if !ok {
		return fs.anyGroup(parent)
	}
	dir.lastAllocGroup.Store(flex<<fs.flexBits + 1)
	if g, ok := fs.groupInFlex(flex); ok {
		return g, true
	}
	return fs.anyGroup(parent)
}

// findGroupFlat is findGroupFlex without flex groups: the parent's group if it
// has both inodes and blocks, then groups at growing distance from a place
// that depends on the parent, then any.
func (fs *FS) findGroupFlat(dir *Inode, parent ondisk.GroupNumber) (ondisk.GroupNumber, bool) {
	roomy := func(g uint32) bool {
		return fs.hasFreeInode(ondisk.GroupNumber(g)) && fs.groups[g].freeClusters.Load() > 0
	}
	n := uint32(fs.groupCount)
	if roomy(uint32(parent)) {
		return parent, true
	}
	g := uint32(parent)
	if dir != nil {
		g = uint32((uint64(parent) + uint64(dir.ino)) % uint64(n))
	}
	for step := uint32(1); step < n; step <<= 1 {
		if g = uint32((uint64(g) + uint64(step)) % uint64(n)); roomy(g) {
			return ondisk.GroupNumber(g), true
		}
	}
	return fs.anyGroup(parent)
}
