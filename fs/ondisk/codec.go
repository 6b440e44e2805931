package ondisk

import "encoding/binary"

var le = binary.LittleEndian

// codec walks a structure field by field, reading or writing, so that Decode
// and Encode of a cold structure are one list and cannot drift apart. The
// caller has checked the length of b.
type codec struct {
	b       []byte
	off     int
	writing bool
}

func (c *codec) u8(p *uint8) {
	if c.writing {
		c.b[c.off] = *p
	} else {
		*p = c.b[c.off]
	}
	c.off++
}

func (c *codec) u16(p *uint16) {
	if c.writing {
		le.PutUint16(c.b[c.off:], *p)
	} else {
		*p = le.Uint16(c.b[c.off:])
	}
	c.off += 2
}

func (c *codec) u32(p *uint32) {
	if c.writing {
		le.PutUint32(c.b[c.off:], *p)
	} else {
		*p = le.Uint32(c.b[c.off:])
	}
	c.off += 4
}

func (c *codec) u64(p *uint64) {
	if c.writing {
		le.PutUint64(c.b[c.off:], *p)
	} else {
		*p = le.Uint64(c.b[c.off:])
	}
	c.off += 8
}

func (c *codec) bytes(p []byte) {
	if c.writing {
		copy(c.b[c.off:], p)
	} else {
		copy(p, c.b[c.off:c.off+len(p)])
	}
	c.off += len(p)
}

func (c *codec) u32s(p []uint32) {
	for i := range p {
		c.u32(&p[i])
	}
}

// cString is the text of a fixed field up to its first NUL.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
