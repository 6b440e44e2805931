package ondisk

import "testing"

// Check values of the two polynomials, from the catalogue of CRCs: crc32c of
// "123456789" is e3069283 with the final inversion that ext4 leaves out, and
// CRC-16/MODBUS (start ffff, as ext4 starts) is 4b37.
func TestCRCCheckValues(t *testing.T) {
	p := []byte("123456789")
	if got := ^CRC32C(^uint32(0), p); got != 0xe3069283 {
		t.Errorf("crc32c: %#x", got)
	}
	if got := crc16(^uint16(0), p); got != 0x4b37 {
		t.Errorf("crc16: %#x", got)
	}
}
