package image

// Limits bounds what a root filesystem from outside may make this host write.
// Zero fields take the defaults.
type Limits struct {
	Bytes   int64 // of all files together, holes of sparse files included
	Entries int   // files, directories and links
}

// The defaults: far above any useful image, far below what fills a disk.
const (
	defaultBytes   = 32 << 30
	defaultEntries = 1_000_000
)

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	return l
}
