package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"extfused/fs/ext4"
	"extfused/fs/fusefs"
	"extfused/mballoc"
)

// Sources are what is shown.
type Sources struct {
	FS   *ext4.FS
	FUSE *fusefs.FileSystem // nil if nothing is served

	Image, Mountpoint, Version string
}

// snapshot is what all metrics of one scrape are made from.
type snapshot struct {
	src   *Sources
	fs    ext4.Stats
	stat  ext4.StatFS
	alloc mballoc.Stats
	fuse  fusefs.Stats
}

func (s *Sources) take() *snapshot {
	snap := &snapshot{src: s, fs: s.FS.Stats(), stat: s.FS.Statfs(), alloc: s.FS.Allocator().Stats()}
	if s.FUSE != nil {
		snap.fuse = s.FUSE.Stats()
	}
	return snap
}

// put emits a value with the values of the metric's labels.
type put func(value float64, labels ...string)

// metric is one family: how it is called, and where its values come from.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	values     func(*snapshot, put)
}

// histogram is a family of histograms.
type histogram struct {
	name, help string
	labels     []string
	values     func(*snapshot, putHistogram)
}

// putHistogram emits a histogram: how many observations each bucket has, the
// last one being what is above all bounds, and their sum.
type putHistogram func(bounds []float64, counts []uint64, sum time.Duration, labels ...string)

func counter(name, help string, value func(*snapshot) uint64) metric {
	return metric{name, help, prometheus.CounterValue, nil, func(s *snapshot, p put) { p(float64(value(s))) }}
}

func gauge(name, help string, value func(*snapshot) float64) metric {
	return metric{name, help, prometheus.GaugeValue, nil, func(s *snapshot, p put) { p(value(s)) }}
}

// collector is the prometheus.Collector of a mount.
type collector struct {
	gate  *gate
	descs map[string]*prometheus.Desc
}

func newCollector(g *gate) *collector {
	c := &collector{gate: g, descs: map[string]*prometheus.Desc{}}
	for _, m := range allMetrics {
		c.descs[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
	}
	for _, h := range allHistograms {
		c.descs[h.name] = prometheus.NewDesc(h.name, h.help, h.labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	src, leave := c.gate.enter()
	if src == nil {
		return
	}
	defer leave()
	s := src.take()
	for _, m := range allMetrics {
		m.values(s, func(v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(c.descs[m.name], m.kind, v, labels...)
		})
	}
	for _, h := range allHistograms {
		h.values(s, func(bounds []float64, counts []uint64, sum time.Duration, labels ...string) {
			count, buckets := cumulate(bounds, counts)
			ch <- prometheus.MustNewConstHistogram(c.descs[h.name], count, sum.Seconds(), buckets, labels...)
		})
	}
}

// cumulate turns counts of buckets into what Prometheus wants: for each bound
// the number of observations up to it, and the number of all.
func cumulate(bounds []float64, counts []uint64) (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(bounds))
	for i, n := range counts {
		count += n
		if i < len(bounds) {
			buckets[bounds[i]] = count
		}
	}
	return count, buckets
}

func bool01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
