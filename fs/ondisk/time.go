package ondisk

// Timestamp is a moment as ext4 keeps it: Sec seconds since 1970 (negative
// before), Nsec nanoseconds of the second, 0 to 999,999,999.
type Timestamp struct {
	Sec  int64
	Nsec uint32
}

// Bounds of the seconds of a timestamp: without the extra field 32 bits with
// sign (1901 to 2038), with it two more bits (to 2446).
const (
	MinTimeSec      = -1 << 31
	MaxTimeSec      = 1<<31 - 1
	MaxTimeSecExtra = 3<<32 + 1<<31 - 1
)

// DecodeTime puts a timestamp together from i_?time and i_?time_extra, which
// is 0 where the inode has none. The two low bits of extra are added to the
// signed seconds as bits 32 and 33; the others are nanoseconds, cut to below
// one second.
func DecodeTime(lo, extra uint32) Timestamp {
	return Timestamp{
		Sec:  int64(int32(lo)) + int64(extra&3)<<32,
		Nsec: min(extra>>2, 999_999_999),
	}
}

// EncodeTime is the inverse of DecodeTime. Seconds out of range are clamped
// to the nearest representable moment, with zero nanoseconds; wide tells
// whether the extra field exists.
func EncodeTime(t Timestamp, wide bool) (lo, extra uint32) {
	t = ClampTime(t, wide)
	lo = uint32(t.Sec)
	if !wide {
		return lo, 0
	}
	epoch := uint32((t.Sec-int64(int32(lo)))>>32) & 3
	return lo, t.Nsec<<2 | epoch
}

// ClampTime is t as it will be read back after it was stored.
func ClampTime(t Timestamp, wide bool) Timestamp {
	top := int64(MaxTimeSec)
	if wide {
		top = MaxTimeSecExtra
	} else {
		t.Nsec = 0
	}
	switch {
	case t.Sec < MinTimeSec:
		return Timestamp{Sec: MinTimeSec}
	case t.Sec > top:
		return Timestamp{Sec: top}
	}
	return t
}

// Atime is the time of the last access.
func (n *Inode) Atime() Timestamp { return DecodeTime(n.AtimeLo, n.AtimeExtra) }

// Ctime is the time of the last change of the inode.
func (n *Inode) Ctime() Timestamp { return DecodeTime(n.CtimeLo, n.CtimeExtra) }

// Mtime is the time of the last change of the content.
func (n *Inode) Mtime() Timestamp { return DecodeTime(n.MtimeLo, n.MtimeExtra) }

// Crtime is the time of creation; ok is false when the inode has no room for it.
func (n *Inode) Crtime() (t Timestamp, ok bool) {
	return DecodeTime(n.CrtimeLo, n.CrtimeExtra), n.Fits(EndCrtime)
}

// SetAtime stores the time of the last access, clamped.
func (n *Inode) SetAtime(t Timestamp) {
	n.AtimeLo, n.AtimeExtra = EncodeTime(t, n.Fits(EndAtimeExtra))
}

// SetCtime stores the time of the last change of the inode, clamped.
func (n *Inode) SetCtime(t Timestamp) {
	n.CtimeLo, n.CtimeExtra = EncodeTime(t, n.Fits(EndCtimeExtra))
}

// SetMtime stores the time of the last change of the content, clamped.
func (n *Inode) SetMtime(t Timestamp) {
	n.MtimeLo, n.MtimeExtra = EncodeTime(t, n.Fits(EndMtimeExtra))
}

// SetCrtime stores the time of creation, clamped, where there is room for it.
func (n *Inode) SetCrtime(t Timestamp) {
	if n.Fits(EndCrtime) {
		n.CrtimeLo, n.CrtimeExtra = EncodeTime(t, n.Fits(EndCrtimeExtra))
	}
}
