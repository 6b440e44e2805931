package htree

import (
	"hash/crc32"
	"math/bits"

	"extfused/fs/ondisk"
)

// hashEOF is the one even value that no name may hash to: it marks the end of
// a directory in the kernel's positions.
const hashEOF = ondisk.DxEOF << 1

// defaultSeed is used when s_hash_seed is all zero.
var defaultSeed = [4]uint32{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chars is a name: of a caller, or in a block.
type chars interface{ string | []byte }

// Hash returns the hash that orders name in the index (major, an even number)
// and a second one (minor) that orders names of equal major hash. For the
// legacy hash, which has no second value, minor is the CRC32C of the name;
// nothing on disk depends on it.
func (p *Params) Hash(version uint8, name []byte) (major, minor uint32) {
	major, minor = hash(p, version, name)
	if version == ondisk.HashLegacy {
		minor = crc32.Checksum(name, castagnoli)
	}
	return major, minor
}

// hash is Hash with the minor hash of the legacy version left 0.
func hash[T chars](p *Params, version uint8, name T) (major, minor uint32) {
	switch version {
	case ondisk.HashHalfMD4:
		major, minor = hashHalfMD4(p, name)
	case ondisk.HashTea:
		major, minor = hashTea(p, name)
	default:
		major = hashLegacy(p, name)
	}
	major &^= 1
	if major == hashEOF {
		major -= 2
	}
	return major, minor
}

// hashString is the major hash of a name that is looked for.
func (p *Params) hashString(version uint8, name string) uint32 {
	major, _ := hash(p, version, name)
	return major
}

func (p *Params) seed() [4]uint32 {
	if p.HashSeed == ([4]uint32{}) {
		return defaultSeed
	}
	return p.HashSeed
}

// char widens a byte of a name as the C compiler of the machine that made the
// file system widened a char.
func (p *Params) char(c byte) uint32 {
	if p.Unsigned {
		return uint32(c)
	}
	return uint32(int32(int8(c)))
}

func hashLegacy[T chars](p *Params, name T) uint32 {
	prev, cur := uint32(0x37abe8f9), uint32(0x12a3fe2d)
	for i := range len(name) {
		h := prev + (cur ^ (p.char(name[i]) * 7152373))
		if h&0x80000000 != 0 {
			h -= 0x7fffffff
		}
		prev, cur = cur, h
	}
	return cur << 1
}

// words packs up to 4*len(out) bytes of s from index i on into big-endian
// words; what is missing is filled with the number of bytes there were left,
// repeated.
func words[T chars](p *Params, s T, i int, out []uint32) {
	pad := uint32(len(s) - i)
	pad |= pad << 8
	pad |= pad << 16
	for w := range out {
		v := pad
		if i+4 <= len(s) {
			v = p.char(s[i])<<24 + p.char(s[i+1])<<16 + p.char(s[i+2])<<8 + p.char(s[i+3])
		} else {
			for j := i; j < len(s); j++ {
				v = p.char(s[j]) + v<<8
			}
		}
		out[w] = v
		i += 4
	}
}

func hashTea[T chars](p *Params, name T) (major, minor uint32) {
	s := p.seed()
	var in [4]uint32
	for i := 0; i < len(name); i += 16 {
		words(p, name, i, in[:])
		teaTransform(&s, &in)
	}
	return s[0], s[1]
}

// teaTransform mixes in into the first two words of s with 16 rounds of the
// Tiny Encryption Algorithm (Wheeler and Needham), in being the key.
func teaTransform(s, in *[4]uint32) {
	const delta = 0x9E3779B9
	b0, b1, sum := s[0], s[1], uint32(0)
	for range 16 {
		sum += delta
		b0 += ((b1 << 4) + in[0]) ^ (b1 + sum) ^ ((b1 >> 5) + in[1])
		b1 += ((b0 << 4) + in[2]) ^ (b0 + sum) ^ ((b0 >> 5) + in[3])
	}
	s[0] += b0
	s[1] += b1
}

func hashHalfMD4[T chars](p *Params, name T) (major, minor uint32) {
	s := p.seed()
	var in [8]uint32
	for i := 0; i < len(name); i += 32 {
		words(p, name, i, in[:])
		halfMD4Transform(&s, &in)
	}
	return s[1], s[2]
}

// halfMD4Transform is MD4's compression (RFC 1320) over half a block: eight
// words, each used once per round.
func halfMD4Transform(s *[4]uint32, in *[8]uint32) {
	const k2, k3 = 0x5a827999, 0x6ed9eba1 // sqrt(2), sqrt(3) times 2^30
	a, b, c, d := s[0], s[1], s[2], s[3]
	for i := 0; i < 8; i += 4 {
		a = bits.RotateLeft32(a+(d^(b&(c^d)))+in[i], 3)
		d = bits.RotateLeft32(d+(c^(a&(b^c)))+in[i+1], 7)
		c = bits.RotateLeft32(c+(b^(d&(a^b)))+in[i+2], 11)
		b = bits.RotateLeft32(b+(a^(c&(d^a)))+in[i+3], 19)
	}
	for i := 0; i < 2; i++ { // words 1 3 5 7, then 0 2 4 6
		j := 1 - i
		a = bits.RotateLeft32(a+(b&c|b&d|c&d)+in[j]+k2, 3)
		d = bits.RotateLeft32(d+(a&b|a&c|b&c)+in[j+2]+k2, 5)
		c = bits.RotateLeft32(c+(d&a|d&b|a&b)+in[j+4]+k2, 9)
		b = bits.RotateLeft32(b+(c&d|c&a|d&a)+in[j+6]+k2, 13)
	}
	for i := 0; i < 2; i++ { // words 3 7 2 6, then 1 5 0 4
		j := 3 - 2*i
		a = bits.RotateLeft32(a+(b^c^d)+in[j]+k3, 3)
		d = bits.RotateLeft32(d+(a^b^c)+in[j+4]+k3, 9)
		c = bits.RotateLeft32(c+(d^a^b)+in[j-1]+k3, 11)
		b = bits.RotateLeft32(b+(c^d^a)+in[j+3]+k3, 15)
	}
	s[0] += a
	s[1] += b
	s[2] += c
	s[3] += d
}
