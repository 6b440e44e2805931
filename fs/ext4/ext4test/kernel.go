package ext4test

import (
	"os"
	"os/exec"
	"strings"
)

// KernelMount mounts an image read-only with the kernel's ext4 on a temporary
// directory, and returns it. The mount ends with the test. Without the right
// to, it logs why and returns "".
func KernelMount(t TB, image string) string { return kernelMount(t, image, "ro") }

// KernelMountRW is KernelMount for writing; call the function to unmount.
func KernelMountRW(t TB, image string) (dir string, unmount func()) {
	dir = kernelMount(t, image, "rw")
	return dir, func() { umount(t, dir) }
}

func kernelMount(t TB, image, mode string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Logf("the kernel's view is not compared: not root")
		return ""
	}
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "ext4", "-o", "loop,"+mode, image, dir).CombinedOutput()
	if err != nil {
		t.Logf("the kernel's view is not compared: mount: %v %s", err, strings.TrimSpace(string(out)))
		return ""
	}
	t.Cleanup(func() { umount(t, dir) })
	return dir
}

// umount does nothing where nothing is mounted any more.
func umount(t TB, dir string) {
	if dir == "" || exec.Command("mountpoint", "-q", dir).Run() != nil {
		return
	}
	if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
		t.Errorf("umount: %v %s", err, out)
	}
}
