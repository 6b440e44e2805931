package allocbench

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// turns is how often the variants of a timed row are measured, in turn, so that what else the
// machine does hits all alike; the median counts.
const turns = 9

// medians measures each variant turns times, a turn of each after the other, for the duration
// altogether, and returns their median rates.
func medians(duration time.Duration, variants ...func(d time.Duration) (float64, error)) ([]float64, error) {
	rates := make([][]float64, len(variants))
	for range turns {
		for i, variant := range variants {
			rate, err := variant(duration / turns)
			if err != nil {
				return nil, err
			}
			rates[i] = append(rates[i], rate)
		}
	}
	var m []float64
	for _, r := range rates {
		slices.Sort(r)
		m = append(m, r[turns/2])
	}
	return m, nil
}

type opRate struct {
	count uint64
	rate  float64
}

// measure runs fn in workers goroutines until it returns or the time is over, and adds up what it
// counted.
func measure(workers int, duration time.Duration, fn func(w int, stop *atomic.Bool) (uint64, error)) (opRate, error) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	counts, errs := make([]uint64, workers), make([]error, workers)
	start := time.Now()
	timer := time.AfterFunc(duration, func() { stop.Store(true) })
	defer timer.Stop()
	for w := range workers {
		wg.Go(func() { counts[w], errs[w] = fn(w, &stop) })
	}
	wg.Wait()
	seconds := time.Since(start).Seconds()
	var total opRate
	for w := range workers {
		if errs[w] != nil {
			return total, errs[w]
		}
		total.count += counts[w]
	}
	total.rate = float64(total.count) / seconds
	return total, nil
}
