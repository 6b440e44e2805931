package ondisk

const (
	// MMPSize is the size of the MMP structure in bytes.
	MMPSize = 1024
	// MMPMagic is mmp_magic.
	MMPMagic = 0x004D4D50
	// MMPSeqClean is mmp_seq of a file system that nobody uses, MMPSeqFsck
	// while fsck runs; MMPSeqMax is the largest value that counts.
	MMPSeqClean = 0xFF4D4D50
	MMPSeqFsck  = 0xE24D4D50
	MMPSeqMax   = 0xE24D4D4F
)

// MMP is struct mmp_struct: the block by which two hosts learn of each other.
type MMP struct {
	Magic         uint32   // 0x00 mmp_magic
	Seq           uint32   // 0x04 mmp_seq
	Time          uint64   // 0x08 mmp_time, s since 1970
	NodeName      [64]byte // 0x10 mmp_nodename
	BdevName      [32]byte // 0x50 mmp_bdevname
	CheckInterval uint16   // 0x70 mmp_check_interval, in s
	Pad1          uint16   // 0x72 mmp_pad1
	Pad2          [226]uint32
	Checksum      uint32 // 0x3fc mmp_checksum
}

// Decode reads the structure and checks its magic.
func (m *MMP) Decode(b []byte) error {
	if len(b) < MMPSize {
		return errShort("an MMP block", MMPSize, len(b))
	}
	m.walk(&codec{b: b})
	if m.Magic != MMPMagic {
		return Corrupt("MMP block has magic %#x", m.Magic)
	}
	return nil
}

// Encode writes the structure to b.
func (m *MMP) Encode(b []byte) { m.walk(&codec{b: b[:MMPSize], writing: true}) }

func (m *MMP) walk(c *codec) {
	c.u32(&m.Magic)
	c.u32(&m.Seq)
	c.u64(&m.Time)
	c.bytes(m.NodeName[:])
	c.bytes(m.BdevName[:])
	c.u16(&m.CheckInterval)
	c.u16(&m.Pad1)
	c.u32s(m.Pad2[:])
	c.u32(&m.Checksum)
}
