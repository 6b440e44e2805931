package daemon

import (
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"extfused/mballoc"
)

// Tunable is one knob of the allocator, as "set" answers it.
type Tunable struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Default string `json:"default"` // what ext4 begins with on such a file system
	Max     int64  `json:"max"`     // the least value is 0
}

// set changes the tunables that args name, all of them or none, and answers
// with all there are.
func (d *Daemon) set(args map[string]string) (any, error) {
	a := d.fs.Allocator()
	if err := a.SetAll(args); err != nil {
		return nil, &wrongArgs{err}
	}
	if len(args) > 0 {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(args)) {
			words = append(words, name+"="+args[name])
		}
		d.log.Info("tunables changed", zap.String("set", strings.Join(words, " ")))
	}
	return tunables(a)
}

func tunables(a *mballoc.Allocator) (list []Tunable, err error) {
	ext4s := mballoc.DefaultTunables(a.Geometry())
	defaults := ext4s.Map()
	for _, name := range a.Names() {
		t := Tunable{Name: name, Default: defaults[name]}
		if t.Value, err = a.Get(name); err == nil {
			t.Max, err = a.Limit(name)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}
