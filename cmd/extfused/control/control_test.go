package control

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// private makes a fresh place for sockets: as another user it would be
// XDG_RUNTIME_DIR, as root the fallback below TMPDIR.
func private(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
}

func TestTalk(t *testing.T) {
	private(t)
	const dev = "999999:1"
	if _, err := Dial(dev, os.Getuid()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("dial without a daemon: %v, want ErrNoDaemon", err)
	}
	s, err := Listen(dev, map[string]Handler{
		"echo": func(args map[string]string) (any, error) { return args["word"], nil },
		"busy": func(map[string]string) (any, error) { return nil, syscall.EBUSY },
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	st, err := os.Stat(s.Path())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v; want 0600", st.Mode(), err)
	}
	if st, err := os.Stat(filepath.Dir(s.Path())); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v, %v; want 0700", st.Mode(), err)
	}
	c, err := Dial(dev, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, word := range []string{"one", "two"} {
		var got string
		if err := c.Do("echo", map[string]string{"word": word}, &got); err != nil || got != word {
			t.Errorf("echo %s: %q, %v", word, got, err)
		}
	}
	if err := c.Do("busy", nil, nil); !errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EPERM) {
		t.Errorf("busy: %v, want EBUSY", err)
	}
	if err := c.Do("frob", nil, nil); err == nil {
		t.Error("an unknown command was obeyed")
	}
	s.Close()
	if _, err := os.Stat(s.Path()); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := Dial(dev, os.Getuid()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("dial after the end: %v, want ErrNoDaemon", err)
	}
}

// TestCloseAnswersFirst: who waits for an answer gets it.
func TestCloseAnswersFirst(t *testing.T) {
	private(t)
	const dev = "999999:2"
	asked, answer := make(chan struct{}), make(chan struct{})
	s, err := Listen(dev, map[string]Handler{"wait": func(map[string]string) (any, error) {
		close(asked)
		<-answer
		return "done", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	c, err := Dial(dev, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got string
	var wg sync.WaitGroup
	wg.Go(func() { err = c.Do("wait", nil, &got) })
	<-asked
	wg.Go(s.Close)
	close(answer)
	wg.Wait()
	if err != nil || got != "done" {
		t.Errorf("%q, %v; want done", got, err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	private(t)
	dir, err := makeDir(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	const dev = "999999:3"
	stale := filepath.Join(dir, socketName(dev))
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(stale) })
	s, err := Listen(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestDirOfOthersIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	os.Mkdir(dir, 0o755)
	if err := checkDir(dir, os.Getuid()); err == nil {
		t.Error("a directory open to others was accepted")
	}
	os.Chmod(dir, 0o700)
	if err := checkDir(dir, os.Getuid()); err != nil {
		t.Error(err)
	}
	if err := checkDir(dir, os.Getuid()+1); err == nil {
		t.Error("a directory of somebody else was accepted")
	}
	link := dir + "-link"
	os.Symlink(dir, link)
	if err := checkDir(link, os.Getuid()); err == nil {
		t.Error("a symbolic link was accepted")
	}
}
