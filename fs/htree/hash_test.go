package htree

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// hashVectors was printed by debugfs 1.47.0:
//
//	debugfs -R 'dx_hash -h VERSION [-s SEED] NAME'
//
// where versions 3 to 5 are the unsigned variants of 0 to 2. The hash is
// even; debugfs leaves the minor hash of the legacy version 0.
var hashVectors = []struct {
	version      uint8
	seeded       bool
	name         string
	major, minor uint32
}{
	{0, false, "a", 0xe74b53e2, 0x0},
	{0, false, "abc", 0x75afd992, 0x0},
	{0, false, "hello", 0x32252546, 0x0},
	{0, false, "lost+found", 0x5e2aba24, 0x0},
	{0, false, "0123456789abcdef", 0x415c16fe, 0x0},
	{0, false, "0123456789abcdefg", 0xfa356a68, 0x0},
	{0, false, "0123456789abcdef0123456789abcdef", 0x6d4a15ee, 0x0},
	{0, false, "0123456789abcdef0123456789abcdef!", 0xb6ad8fb6, 0x0},
	{0, false, "caf\xc3\xa9", 0x96ca5a2c, 0x0},
	{0, false, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0xac85d92e, 0x0},
	{0, false, "\xff\xfe\x80\x81\x7f", 0x24c8b852, 0x0},
	{0, false, strings.Repeat("x", 255), 0x30557da6, 0x0},
	{0, false, strings.Repeat("\xe9", 255), 0x9ecdac8a, 0x0},
	{1, false, "a", 0xd5fa7d7a, 0xacb48187},
	{1, false, "abc", 0xd196a868, 0xc420eb28},
	{1, false, "hello", 0x1746da32, 0x420013b5},
	{1, false, "lost+found", 0x591de422, 0x6ffc56e0},
	{1, false, "0123456789abcdef", 0x8cb502b6, 0x5acf4f33},
	{1, false, "0123456789abcdefg", 0x3808cb0e, 0x9fb9d3a1},
	{1, false, "0123456789abcdef0123456789abcdef", 0x36184620, 0xc959df59},
	{1, false, "0123456789abcdef0123456789abcdef!", 0xd2138bca, 0xacf6fd75},
	{1, false, "caf\xc3\xa9", 0xfb9c5e5c, 0x573e8b8},
	{1, false, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0x498cd79e, 0x560289f3},
	{1, false, "\xff\xfe\x80\x81\x7f", 0x4b1b8174, 0xb9fb60a0},
	{1, false, strings.Repeat("x", 255), 0x2aa7169e, 0x655f9d9c},
	{1, false, strings.Repeat("\xe9", 255), 0x37c2422e, 0x50c99cc2},
	{2, false, "a", 0x6d0ea4c0, 0xc18922df},
	{2, false, "abc", 0xb1435ec4, 0x3f7eaa0e},
	{2, false, "hello", 0x6f5bb1a8, 0x231917c2},
	{2, false, "lost+found", 0x2dbf9e80, 0xbfebee4f},
	{2, false, "0123456789abcdef", 0x5a0788b2, 0xefa4e711},
	{2, false, "0123456789abcdefg", 0xfb1a23ec, 0xb1ba9f3a},
	{2, false, "0123456789abcdef0123456789abcdef", 0xcbe95e3c, 0x17627589},
	{2, false, "0123456789abcdef0123456789abcdef!", 0xa74da962, 0x4a514ec6},
	{2, false, "caf\xc3\xa9", 0x105842ea, 0xfb9165ca},
	{2, false, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0x902b0c26, 0xe6fa38bf},
	{2, false, "\xff\xfe\x80\x81\x7f", 0xa7a31c8e, 0xc8b445c4},
	{2, false, strings.Repeat("x", 255), 0x6c4c00ee, 0xeafdb6b},
	{2, false, strings.Repeat("\xe9", 255), 0x1b804f32, 0xd59e593d},
	{3, false, "a", 0xe74b53e2, 0x0},
	{3, false, "abc", 0x75afd992, 0x0},
	{3, false, "hello", 0x32252546, 0x0},
	{3, false, "lost+found", 0x5e2aba24, 0x0},
	{3, false, "0123456789abcdef", 0x415c16fe, 0x0},
	{3, false, "0123456789abcdefg", 0xfa356a68, 0x0},
	{3, false, "0123456789abcdef0123456789abcdef", 0x6d4a15ee, 0x0},
	{3, false, "0123456789abcdef0123456789abcdef!", 0xb6ad8fb6, 0x0},
	{3, false, "caf\xc3\xa9", 0x6dde4230, 0x0},
	{3, false, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0xe4053258, 0x0},
	{3, false, "\xff\xfe\x80\x81\x7f", 0x6a1704c4, 0x0},
	{3, false, strings.Repeat("x", 255), 0x30557da6, 0x0},
	{3, false, strings.Repeat("\xe9", 255), 0x76e0988c, 0x0},
	{4, false, "a", 0xd5fa7d7a, 0xacb48187},
	{4, false, "abc", 0xd196a868, 0xc420eb28},
	{4, false, "hello", 0x1746da32, 0x420013b5},
	{4, false, "lost+found", 0x591de422, 0x6ffc56e0},
	{4, false, "0123456789abcdef", 0x8cb502b6, 0x5acf4f33},
	{4, false, "0123456789abcdefg", 0x3808cb0e, 0x9fb9d3a1},
	{4, false, "0123456789abcdef0123456789abcdef", 0x36184620, 0xc959df59},
	{4, false, "0123456789abcdef0123456789abcdef!", 0xd2138bca, 0xacf6fd75},
	{4, false, "caf\xc3\xa9", 0x9d72aed6, 0xf6138c6a},
	{4, false, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0x1b34948a, 0xd4273000},
	{4, false, "\xff\xfe\x80\x81\x7f", 0xdf6cb55a, 0x95b6013a},
	{4, false, strings.Repeat("x", 255), 0x2aa7169e, 0x655f9d9c},
	{4, false, strings.Repeat("\xe9", 255), 0x9941ffb0, 0x60a3e94a},
	{5, false, "a", 0x6d0ea4c0, 0xc18922df},
	{5, false, "abc", 0xb1435ec4, 0x3f7eaa0e},
	{5, false, "hello", 0x6f5bb1a8, 0x231917c2},
	{5, false, "lost+found", 0x2dbf9e80, 0xbfebee4f},
	{5, false, "0123456789abcdef", 0x5a0788b2, 0xefa4e711},
	{5, false, "0123456789abcdefg", 0xfb1a23ec, 0xb1ba9f3a},
	{5, false, "0123456789abcdef0123456789abcdef", 0xcbe95e3c, 0x17627589},
	{5, false, "0123456789abcdef0123456789abcdef!", 0xa74da962, 0x4a514ec6},
	{5, false, "caf\xc3\xa9", 0x6621f032, 0xf86699c6},
	{5, false, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0x5fa5f4f4, 0xc6000116},
	{5, false, "\xff\xfe\x80\x81\x7f", 0x720c6686, 0x27e0bd3d},
	{5, false, strings.Repeat("x", 255), 0x6c4c00ee, 0xeafdb6b},
	{5, false, strings.Repeat("\xe9", 255), 0x15bab1de, 0x155888de},
	{0, true, "a", 0xe74b53e2, 0x0},
	{0, true, "abc", 0x75afd992, 0x0},
	{0, true, "hello", 0x32252546, 0x0},
	{0, true, "lost+found", 0x5e2aba24, 0x0},
	{0, true, "0123456789abcdef", 0x415c16fe, 0x0},
	{0, true, "0123456789abcdefg", 0xfa356a68, 0x0},
	{0, true, "0123456789abcdef0123456789abcdef", 0x6d4a15ee, 0x0},
	{0, true, "0123456789abcdef0123456789abcdef!", 0xb6ad8fb6, 0x0},
	{0, true, "caf\xc3\xa9", 0x96ca5a2c, 0x0},
	{0, true, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0xac85d92e, 0x0},
	{0, true, "\xff\xfe\x80\x81\x7f", 0x24c8b852, 0x0},
	{0, true, strings.Repeat("x", 255), 0x30557da6, 0x0},
	{0, true, strings.Repeat("\xe9", 255), 0x9ecdac8a, 0x0},
	{1, true, "a", 0xd4f14b26, 0xb85cb33f},
	{1, true, "abc", 0x7b270c7e, 0xaf2fc297},
	{1, true, "hello", 0xacba1d2c, 0x771c443e},
	{1, true, "lost+found", 0xe932fcb0, 0x8099e5},
	{1, true, "0123456789abcdef", 0x6e8efd10, 0x5d80a3a},
	{1, true, "0123456789abcdefg", 0x83ad441e, 0xe6f65a86},
	{1, true, "0123456789abcdef0123456789abcdef", 0xfc027cd8, 0xf04b9592},
	{1, true, "0123456789abcdef0123456789abcdef!", 0x5fd48ba2, 0x81713012},
	{1, true, "caf\xc3\xa9", 0x6e9f5cec, 0x493a7250},
	{1, true, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0xfac6fd98, 0xfcf707b7},
	{1, true, "\xff\xfe\x80\x81\x7f", 0x9745c0ec, 0x852918bd},
	{1, true, strings.Repeat("x", 255), 0x34d28950, 0x4735860e},
	{1, true, strings.Repeat("\xe9", 255), 0x66e82136, 0xf016b6d2},
	{2, true, "a", 0x93241d68, 0x15040513},
	{2, true, "abc", 0xd1bc32b2, 0xefdf8282},
	{2, true, "hello", 0x3fca1248, 0xae1b9faa},
	{2, true, "lost+found", 0x294a3504, 0xb4a6c404},
	{2, true, "0123456789abcdef", 0x3b314f9e, 0x19c15bd5},
	{2, true, "0123456789abcdefg", 0x3d628110, 0x8ce9ebef},
	{2, true, "0123456789abcdef0123456789abcdef", 0x77c45510, 0xa936fdf1},
	{2, true, "0123456789abcdef0123456789abcdef!", 0x8433c0a6, 0x312d02b0},
	{2, true, "caf\xc3\xa9", 0xff5428d8, 0x74da8373},
	{2, true, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0x6fe39216, 0xd1b23eb1},
	{2, true, "\xff\xfe\x80\x81\x7f", 0xd66b4250, 0xb1ae1862},
	{2, true, strings.Repeat("x", 255), 0x6aedff40, 0x642f619e},
	{2, true, strings.Repeat("\xe9", 255), 0x250aa40a, 0xc53bc373},
	{3, true, "a", 0xe74b53e2, 0x0},
	{3, true, "abc", 0x75afd992, 0x0},
	{3, true, "hello", 0x32252546, 0x0},
	{3, true, "lost+found", 0x5e2aba24, 0x0},
	{3, true, "0123456789abcdef", 0x415c16fe, 0x0},
	{3, true, "0123456789abcdefg", 0xfa356a68, 0x0},
	{3, true, "0123456789abcdef0123456789abcdef", 0x6d4a15ee, 0x0},
	{3, true, "0123456789abcdef0123456789abcdef!", 0xb6ad8fb6, 0x0},
	{3, true, "caf\xc3\xa9", 0x6dde4230, 0x0},
	{3, true, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0xe4053258, 0x0},
	{3, true, "\xff\xfe\x80\x81\x7f", 0x6a1704c4, 0x0},
	{3, true, strings.Repeat("x", 255), 0x30557da6, 0x0},
	{3, true, strings.Repeat("\xe9", 255), 0x76e0988c, 0x0},
	{4, true, "a", 0xd4f14b26, 0xb85cb33f},
	{4, true, "abc", 0x7b270c7e, 0xaf2fc297},
	{4, true, "hello", 0xacba1d2c, 0x771c443e},
	{4, true, "lost+found", 0xe932fcb0, 0x8099e5},
	{4, true, "0123456789abcdef", 0x6e8efd10, 0x5d80a3a},
	{4, true, "0123456789abcdefg", 0x83ad441e, 0xe6f65a86},
	{4, true, "0123456789abcdef0123456789abcdef", 0xfc027cd8, 0xf04b9592},
	{4, true, "0123456789abcdef0123456789abcdef!", 0x5fd48ba2, 0x81713012},
	{4, true, "caf\xc3\xa9", 0x7a3f6512, 0x7a462da9},
	{4, true, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0xb2a0e0b0, 0x65f9c7b9},
	{4, true, "\xff\xfe\x80\x81\x7f", 0x20b132d4, 0xe5015248},
	{4, true, strings.Repeat("x", 255), 0x34d28950, 0x4735860e},
	{4, true, strings.Repeat("\xe9", 255), 0x10b74f24, 0x39b52c90},
	{5, true, "a", 0x93241d68, 0x15040513},
	{5, true, "abc", 0xd1bc32b2, 0xefdf8282},
	{5, true, "hello", 0x3fca1248, 0xae1b9faa},
	{5, true, "lost+found", 0x294a3504, 0xb4a6c404},
	{5, true, "0123456789abcdef", 0x3b314f9e, 0x19c15bd5},
	{5, true, "0123456789abcdefg", 0x3d628110, 0x8ce9ebef},
	{5, true, "0123456789abcdef0123456789abcdef", 0x77c45510, 0xa936fdf1},
	{5, true, "0123456789abcdef0123456789abcdef!", 0x8433c0a6, 0x312d02b0},
	{5, true, "caf\xc3\xa9", 0x255e0784, 0xf0dcdcf5},
	{5, true, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe5\x90\x8d.txt", 0x9e65222a, 0xcbb08201},
	{5, true, "\xff\xfe\x80\x81\x7f", 0x11d62014, 0x90a7cf16},
	{5, true, strings.Repeat("x", 255), 0x6aedff40, 0x642f619e},
	{5, true, strings.Repeat("\xe9", 255), 0x4c90dd3c, 0xe2ce6733},
}

// vectorSeed is the UUID 12345678-1234-5678-9abc-def012345678 as the four
// little-endian words of s_hash_seed.
var vectorSeed = [4]uint32{0x78563412, 0x78563412, 0xf0debc9a, 0x78563412}

func TestHashVectors(t *testing.T) {
	for _, v := range hashVectors {
		p := &Params{Unsigned: v.version >= 3}
		if v.seeded {
			p.HashSeed = vectorSeed
		}
		major, minor := p.Hash(v.version%3, []byte(v.name))
		if v.version%3 == 0 {
			minor = 0
		}
		if major != v.major || minor != v.minor {
			t.Errorf("version %d seeded %v %q: %#x (minor %#x), debugfs says %#x (minor %#x)",
				v.version, v.seeded, v.name, major, minor, v.major, v.minor)
		}
		if h := p.hashString(v.version%3, v.name); h != major {
			t.Errorf("hashString(%q) = %#x, Hash %#x", v.name, h, major)
		}
	}
}

// TestHashAgainstDebugfs asks the debugfs of this machine about names of every
// length.
func TestHashAgainstDebugfs(t *testing.T) {
	if _, err := exec.LookPath("debugfs"); err != nil {
		t.Skip("debugfs is not installed")
	}
	var script strings.Builder
	type want struct {
		version uint8
		name    string
	}
	var asked []want
	for n := 1; n <= MaxNameLen; n += 7 {
		for v := range uint8(6) {
			name := strings.Repeat("ab\xe4\xf6c", n/5+1)[:n]
			fmt.Fprintf(&script, "dx_hash -h %d %s\n", v, name)
			asked = append(asked, want{v, name})
		}
	}
	cmd := exec.Command("debugfs", "-f", "-")
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, line := range strings.Split(string(out), "\n") {
		at := strings.LastIndex(line, " is 0x")
		if !strings.HasPrefix(line, "Hash of ") || at < 0 {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(line[at:], " is 0x%x (minor 0x%x)", &major, &minor); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		w := asked[i]
		i++
		p := &Params{Unsigned: w.version >= 3}
		ours, oursMinor := p.Hash(w.version%3, []byte(w.name))
		if ours != major || w.version%3 != 0 && oursMinor != minor {
			t.Errorf("version %d, %d bytes: %#x %#x, debugfs %#x %#x", w.version, len(w.name), ours, oursMinor, major, minor)
		}
	}
	if i != len(asked) {
		t.Fatalf("debugfs answered %d of %d questions", i, len(asked))
	}
}
