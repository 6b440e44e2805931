package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"syscall"
)

// ErrNoDaemon means that nobody listens for a mount.
var ErrNoDaemon = errors.New("no extfused daemon answers for it")

// Client is a connection to a daemon.
type Client struct {
	conn net.Conn
	enc  *json.Encoder
	dec  *json.Decoder
}

// Dial connects to the daemon of the mount with device number dev that user
// uid started.
func Dial(dev string, uid int) (*Client, error) {
	for _, d := range dirs(uid) {
		if checkDir(d, uid) != nil {
			continue
		}
		conn, err := net.Dial("unix", filepath.Join(d, socketName(dev)))
		if errors.Is(err, syscall.EACCES) {
			return nil, err
		}
		if err == nil {
			return &Client{conn: conn, enc: json.NewEncoder(conn), dec: json.NewDecoder(conn)}, nil
		}
	}
	return nil, ErrNoDaemon
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Do sends a request and waits for the answer, as long as it takes. data, if
// not nil, takes the answer's data.
func (c *Client) Do(command string, args map[string]string, data any) error {
	if err := c.enc.Encode(Request{Command: command, Args: args}); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	var r Response
	if err := c.dec.Decode(&r); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: the daemon ended without an answer", command)
		}
		return fmt.Errorf("%s: %w", command, err)
	}
	if !r.OK {
		return &RemoteError{Text: r.Error, Errno: syscall.Errno(r.Errno)}
	}
	if data == nil || len(r.Data) == 0 {
		return nil
	}
	return json.Unmarshal(r.Data, data)
}
