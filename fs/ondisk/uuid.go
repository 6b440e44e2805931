package ondisk

import (
	"encoding/hex"
	"fmt"
)

// UUID is a file system's or a journal's identity, in the byte order of the
// disk, which is that of its text.
type UUID [16]byte

// String is the usual text, 8-4-4-4-12 lower case hexadecimal digits.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// MarshalText makes JSON show the usual text.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// ParseUUID reads the usual text, in either case.
func ParseUUID(s string) (u UUID, err error) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, fmt.Errorf("%q is no UUID (want xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)", s)
	}
	digits := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return UUID{}, fmt.Errorf("%q is no UUID: %w", s, err)
	}
	return u, nil
}
