package ext4

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// kernelEncrypts gives the mount a key, and makes dir a directory encrypted by it.
func kernelEncrypts(t *testing.T, mnt, dir string) {
	t.Helper()
	root, err := os.Open(mnt)
	mustOK(t, err)
	defer root.Close()
	var arg struct {
		unix.FscryptAddKeyArg
		raw [64]byte
	}
	for k := range arg.raw {
		arg.raw[k] = byte(k * 7)
	}
	arg.Key_spec.Type = unix.FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER
	arg.Raw_size = uint32(len(arg.raw))
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, root.Fd(), unix.FS_IOC_ADD_ENCRYPTION_KEY, uintptr(unsafe.Pointer(&arg))); no != 0 {
		t.Skipf("no encryption in this kernel: %v", no)
	}
	mustOK(t, os.Mkdir(dir, 0o755))
	d, err := os.Open(dir)
	mustOK(t, err)
	defer d.Close()
	policy := unix.FscryptPolicyV2{Version: unix.FSCRYPT_POLICY_V2,
		Contents_encryption_mode: unix.FSCRYPT_MODE_AES_256_XTS, Filenames_encryption_mode: unix.FSCRYPT_MODE_AES_256_CTS,
		Flags: unix.FSCRYPT_POLICY_FLAGS_PAD_16}
	copy(policy.Master_key_identifier[:], arg.Key_spec.U[:])
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, d.Fd(), unix.FS_IOC_SET_ENCRYPTION_POLICY, uintptr(unsafe.Pointer(&policy))); no != 0 {
		t.Skipf("no encryption policy: %v", no)
	}
}

// Without the key we show what the kernel shows without it, and refuse the same.
func TestEncrypted(t *testing.T) {
	image := ext4test.Mke2fs(t, 32<<20, "-O", "encrypt")
	ext4test.KernelMount(t, image, "", func(mnt string) {
		dir := filepath.Join(mnt, "secret")
		kernelEncrypts(t, mnt, dir)
		for k := range 200 { // enough for an index
			mustOK(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("file", k)), []byte("hidden"), 0o600))
		}
		mustOK(t, os.WriteFile(filepath.Join(dir, strings.Repeat("long", 60)), nil, 0o600))
		mustOK(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
		mustOK(t, os.WriteFile(filepath.Join(dir, "sub", "x"), nil, 0o600))
		mustOK(t, os.Symlink("somewhere", filepath.Join(dir, "link")))
	})
	want, links := map[string]bool{}, map[string]string{}
	ext4test.KernelMount(t, image, "ro", func(mnt string) {
		entries, err := os.ReadDir(filepath.Join(mnt, "secret"))
		mustOK(t, err)
		for _, e := range entries {
			want[e.Name()] = true
			if e.Type()&os.ModeSymlink != 0 {
				links[e.Name()], err = os.Readlink(filepath.Join(mnt, "secret", e.Name()))
				mustOK(t, err)
			}
		}
	})
	m := mountImage(t, image, Options{})
	d := m.must(m.Lookup(RootIno, "secret"))
	found := readAll(t, m.FS, d.Ino)
	if len(found) != len(want)+2 || len(want) != 203 {
		t.Errorf("%d names, the kernel shows %d", len(found)-2, len(want))
	}
	for name := range want {
		if found[name] == 0 {
			t.Errorf("%s is not listed", name)
			continue
		}
		a, err := m.Lookup(d.Ino, name)
		if err != nil || a.Ino != found[name] {
			t.Errorf("%s: %d, %v, want %d", name, a.Ino, err, found[name])
			continue
		}
		if target, isLink := links[name]; isLink {
			if got, err := m.Readlink(a.Ino); err != nil || string(got) != target {
				t.Errorf("link: %q, %v, the kernel says %q", got, err, target)
			}
		}
		if a.Mode&ondisk.ModeFmt == ondisk.ModeReg {
			mustErr(t, "open", ignore(m.Open(a.Ino, syscall.O_RDONLY)), syscall.ENOKEY)
			mustErr(t, "truncate", ignore(m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetSize})), syscall.ENOKEY)
			mustErr(t, "chmod", ignore(m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetMode, Mode: 0o640})), nil)
		}
	}
	mustErr(t, "create", ignore(m.Mknod(nil, d.Ino, "new", ondisk.ModeReg|0o644, 0)), syscall.ENOKEY)
	mustErr(t, "mkdir", ignore(m.Mkdir(nil, d.Ino, "new", 0o755)), syscall.ENOKEY)
	f := m.mkfile("plain")
	mustErr(t, "link", ignore(m.Link(f.Ino(), d.Ino, "new")), syscall.ENOKEY)
	mustErr(t, "rename", m.Rename(nil, RootIno, "plain", d.Ino, "new", 0), syscall.ENOKEY)
	mustErr(t, "lookup of nonsense", ignore(m.Lookup(d.Ino, "file1")), syscall.ENOENT)
	for name := range want { // all can be removed
		a := m.must(m.Lookup(d.Ino, name))
		if a.Mode&ondisk.ModeFmt == ondisk.ModeDir {
			for inner := range readAll(t, m.FS, a.Ino) {
				if inner != "." && inner != ".." {
					mustOK(t, m.Unlink(a.Ino, inner))
				}
			}
			mustOK(t, m.Rmdir(d.Ino, name))
		} else {
			mustOK(t, m.Unlink(d.Ino, name))
		}
	}
	mustOK(t, m.Rmdir(RootIno, "secret"))
}

// A sealed file is read and removed, and not written.
func TestVerity(t *testing.T) {
	image := ext4test.Mke2fs(t, 16<<20, "-O", "verity")
	m := mountImage(t, image, Options{})
	f := m.mkfile("sealed")
	f.WriteAt([]byte("content"), 0)
	ino := f.Ino()
	f.Release()
	m.unmount()
	ext4test.DebugfsW(t, image, "sif sealed flags 0x180000")
	m.mount()
	mustErr(t, "open for writing", ignore(m.Open(ino, syscall.O_RDWR)), syscall.EPERM)
	mustErr(t, "truncate", ignore(m.SetAttr(nil, ino, &SetAttr{Valid: SetSize})), syscall.EPERM)
	g, err := m.Open(ino, syscall.O_RDONLY)
	mustOK(t, err)
	b := make([]byte, 20)
	if n, err := g.ReadAt(b, 0); err != nil || string(b[:n]) != "content" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	g.Release()
	mustOK(t, m.Unlink(RootIno, "sealed"))
}
