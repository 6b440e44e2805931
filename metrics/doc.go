// Package metrics shows what the engines count: Prometheus metrics, the views
// that a kernel user knows from /proc/fs/ext4, and pprof, over HTTP. It only
// reads, and is the only package that knows Prometheus.
//
// A metric is named extfused_<package>_<what>_<unit>, in base units; counters
// end in _total.
package metrics
