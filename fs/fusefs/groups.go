package fusefs

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// processGroups reads the supplementary groups of a process, which FUSE does
// not send along. A process that has gone has none.
func processGroups(pid uint32) []uint32 {
	if pid == 0 {
		return nil
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	defer file.Close()
	for sc := bufio.NewScanner(file); sc.Scan(); {
		if list, ok := strings.CutPrefix(sc.Text(), "Groups:"); ok {
			return parseGroups(list)
		}
	}
	return nil
}

func parseGroups(list string) (groups []uint32) {
	for _, word := range strings.Fields(list) {
		if g, err := strconv.ParseUint(word, 10, 32); err == nil {
			groups = append(groups, uint32(g))
		}
	}
	return groups
}
