package devfuse

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Config says how to mount.
type Config struct {
	Source     string   // shown as what is mounted
	Subtype    string   // the mount's type is fuse.Subtype, or fuseblk.Subtype
	AllowOther bool     // every user may come in
	Flags      uintptr  // MS_... flags of mount(2), when root mounts
	Options    []string // the same in words for fusermount3, when others do
	MaxRead    int      // the most data of a READ, in bytes

	// BlockDevice mounts as fuseblk: Source is a block device, which the kernel
	// holds exclusively, and SYNCFS and DESTROY are sent. Root only.
	BlockDevice bool

	Logger *log.Logger // nil is the standard logger
}

// attach mounts at the directory mountpoint and returns /dev/fuse, connected to
// the mount. Root mounts by itself, others through fusermount3, which says on
// our stderr why it refuses.
func (c *Config) attach(mountpoint string) (fd int, err error) {
	if os.Geteuid() == 0 {
		return c.mountDirect(mountpoint)
	}
	if c.BlockDevice {
		return -1, errors.New("only root mounts fuseblk")
	}
	return c.mountHelper(mountpoint)
}

func (c *Config) mountDirect(mountpoint string) (fd int, err error) {
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("open /dev/fuse", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0,max_read=%d,default_permissions", fd, unix.S_IFDIR, c.MaxRead)
	fstype := "fuse." + c.Subtype
	if c.BlockDevice {
		fstype = "fuseblk." + c.Subtype
		data += fmt.Sprintf(",blksize=%d", blockSize)
	}
	if c.AllowOther {
		data += ",allow_other"
	}
	if err := unix.Mount(c.Source, mountpoint, fstype, c.Flags, data); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("mount", err)
	}
	return fd, nil
}

// blockSize is the kernel's s_blocksize of a fuseblk mount, in bytes; st_blksize
// and statfs come from us. The device's own sectors may be no larger.
const blockSize = 4096

// mountHelper lets fusermount3 mount: it passes the descriptor of /dev/fuse
// back through a socket whose number it finds in _FUSE_COMMFD.
func (c *Config) mountHelper(mountpoint string) (fd int, err error) {
	bin, err := Fusermount()
	if err != nil {
		return -1, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "fusermount3")
	defer theirs.Close()
	cmd := exec.Command(bin, "-o", c.helperOptions(), "--", mountpoint)
	cmd.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return -1, fmt.Errorf("%s: %w", bin, err)
	}
	return receive(pair[0])
}

func (c *Config) helperOptions() string {
	o := append([]string{
		"fsname=" + escape(c.Source), "subtype=" + c.Subtype, "default_permissions", fmt.Sprintf("max_read=%d", c.MaxRead),
	}, c.Options...)
	if c.AllowOther {
		o = append(o, "allow_other")
	}
	return strings.Join(o, ",")
}

// escape protects what separates options.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(s)
}

// Fusermount finds the helper that mounts for ordinary users.
func Fusermount() (string, error) {
	for _, name := range []string{"fusermount3", "/bin/fusermount3", "fusermount"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

// receive takes the one descriptor that comes through a socket.
func receive(socket int) (fd int, err error) {
	var data [4]byte
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, data[:], control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	msgs, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(msgs) != 1 {
		return -1, errors.New("fusermount3 passed no descriptor")
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.New("fusermount3 passed no descriptor")
	}
	return fds[0], nil
}

// detach takes a mount down that has not been of use.
func detach(mountpoint string) error {
	if os.Geteuid() == 0 {
		return unix.Unmount(mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	bin, err := Fusermount()
	if err != nil {
		return err
	}
	return exec.Command(bin, "-u", "-z", "--", mountpoint).Run()
}
