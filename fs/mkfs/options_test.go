package mkfs

import (
	"strings"
	"testing"

	"extfused/fs/ondisk"
)

func TestEditFeatures(t *testing.T) {
	p := DefaultParams()
	if err := p.EditFeatures("none,extents ^extent,uninit_bg,64bit"); err != nil {
		t.Fatal(err)
	}
	if want := (ondisk.Features{Incompat: ondisk.Incompat64Bit, ROCompat: ondisk.ROCompatGDTCsum}); p.Features != want {
		t.Errorf("%v, want %v", p.Features, want)
	}
	for _, typ := range []string{"ext2", "ext3", "ext4"} {
		if err := p.SetType(typ); err != nil {
			t.Error(err)
		}
	}
	if p.Features != DefaultFeatures {
		t.Errorf("ext4 is %v", p.Features)
	}
	if err := p.SetType("ext5"); err == nil || !strings.Contains(err.Error(), "ext5") {
		t.Errorf("ext5: %v", err)
	}
	if err := p.EditFeatures("^nonsense"); err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("nonsense: %v", err)
	}
}

// Whatever is no option, or has a bad value, is refused with its name.
func TestEditExtended(t *testing.T) {
	for _, bad := range []string{"nonsense", "stride=x", "stride=-1", "stripe_width=", "root_owner=1", "root_owner=a:b", "hash_seed=1",
		"num_backup_sb=3", "discard=1", "lazy_itable_init=2", "resize=x", "orphan_file_size=0", "quotatype=all", "encoding=latin1",
		"encoding_flags=loose", "desc_size=99999999999"} {
		p := DefaultParams()
		name, _, _ := strings.Cut(bad, "=")
		if err := p.EditExtended("packed_meta_blocks=1," + bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for name := range extended {
		if plain := strings.ReplaceAll(name, "-", "_"); extended[plain] == nil {
			t.Errorf("%s has no spelling without hyphens", name)
		}
	}
	p := DefaultParams()
	if err := p.EditExtended("stride=16,stripe-width=64,,lazy_itable_init,lazy_journal_init=0,root_owner=0x10:7,no_copy_xattrs,resize=8G"); err != nil {
		t.Fatal(err)
	}
	if p.Stride != 16 || p.StripeWidth != 64 || p.ZeroTables || p.LazyJournal || p.RootUID != 16 || p.RootGID != 7 || !p.NoCopyXattrs ||
		p.ResizeTo.Blocks(4096) != 2<<20 {
		t.Errorf("%+v", p)
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "77": 77, "3k": 3 << 10, "4M": 4 << 20, "16T": 16 << 40, "x": -1, "": -1, "M": -1,
		"4MM": -1, "-4": -1, "9999999999T": -1, "4 M": -1} {
		if got, err := ParseBytes(text); err == nil && got != want || err != nil && want >= 0 {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}
