package ondisk

// crc16Table belongs to the reflected polynomial 0x8005 (CRC-16/ARC), which
// uninit_bg uses for group descriptors.
var crc16Table = makeCRC16()

func makeCRC16() (t [256]uint16) {
	for i := range t {
		crc := uint16(i)
		for range 8 {
			low := crc & 1
			crc >>= 1
			if low != 0 {
				crc ^= 0xA001
			}
		}
		t[i] = crc
	}
	return t
}

func crc16(crc uint16, p []byte) uint16 {
	for _, b := range p {
		crc = crc>>8 ^ crc16Table[byte(crc)^b]
	}
	return crc
}
