package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.com/typedqueue"
)

// family is a metric, once for each series. One of gauge, counter and histogram is set.
type family struct {
	name   string
	help   string
	theirs string // controller-runtime's help, if it has the name too: a registry takes only one

	gauge     func(typedqueue.Stats) float64
	counter   func(typedqueue.Stats) uint64
	histogram func(*durations) *prometheus.Histogram
}

// families are client-go's seven, then those that only our queues have.
var families = []family{
	{
		name:   depth,
		help:   "Items that are ready to be handed out.",
		theirs: "Current depth of workqueue by workqueue and priority",
		gauge:  func(s typedqueue.Stats) float64 { return float64(s.Ready) },
	}, {
		name:    "workqueue_adds_total",
		help:    "How often an item became ready, or was added while it was processed.",
		theirs:  "Total number of adds handled by workqueue",
		counter: func(s typedqueue.Stats) uint64 { return s.Adds },
	}, {
		name:      "workqueue_queue_duration_seconds",
		help:      "How long an item was ready until it was handed out.",
		theirs:    "How long in seconds an item stays in workqueue before being requested",
		histogram: func(d *durations) *prometheus.Histogram { return &d.waited },
	}, {
		name:      "workqueue_work_duration_seconds",
		help:      "How long an item was processed, from when it was handed out until it was done.",
		theirs:    "How long in seconds processing an item from workqueue takes.",
		histogram: func(d *durations) *prometheus.Histogram { return &d.worked },
	}, {
		name: "workqueue_unfinished_work_seconds",
		help: "For how long the items that are processed now have been so, in sum.",
		theirs: "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. " +
			"Large values indicate stuck threads. " +
			"One can deduce the number of stuck threads by observing the rate at which this increases.",
		gauge: func(s typedqueue.Stats) float64 { return s.UnfinishedWork.Seconds() },
	}, {
		name:   "workqueue_longest_running_processor_seconds",
		help:   "For how long the item that is processed for the longest time has been so.",
		theirs: "How many seconds has the longest running processor for workqueue been running.",
		gauge:  func(s typedqueue.Stats) float64 { return s.LongestProcessing.Seconds() },
	}, {
		name: "workqueue_retries_total",
		help: "Retries that the rate limiter was asked for.",
		theirs: "Total number of items added to the workqueue with a non-zero delay " +
			"(rate-limited requeues, explicit RequeueAfter or AddAfter calls)",
		counter: func(s typedqueue.Stats) uint64 { return s.Retries },
	},

	{
		name:  "workqueue_processing",
		help:  "Items that are handed out and not yet done.",
		gauge: func(s typedqueue.Stats) float64 { return float64(s.Processing) },
	}, {
		name:  "workqueue_waiting",
		help:  "Items that are due later.",
		gauge: func(s typedqueue.Stats) float64 { return float64(s.Waiting) },
	}, {
		name:    "workqueue_merged_total",
		help:    "Calls that changed nothing because of an earlier one.",
		counter: func(s typedqueue.Stats) uint64 { return s.Merged },
	}, {
		name:    "workqueue_dropped_total",
		help:    "Items that waited when the queue was shut down, or were to wait after that.",
		counter: func(s typedqueue.Stats) uint64 { return s.Dropped },
	}, {
		name:    "workqueue_stray_done_total",
		help:    "Calls of Done for an item that was not processing: a fault of the caller.",
		counter: func(s typedqueue.Stats) uint64 { return s.StrayDones },
	},
}

const depth = "workqueue_depth"

// metric returns what f says of l.
func (f *family) metric(desc *prometheus.Desc, l live, stats typedqueue.Stats, labels []string) prometheus.Metric {
	switch {
	case f.gauge != nil:
		return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, f.gauge(stats), labels...)
	case f.counter != nil:
		v := float64(f.counter(stats))
		return prometheus.MustNewConstMetricWithCreatedTimestamp(desc, prometheus.CounterValue, v, l.created, labels...)
	default:
		return *f.histogram(l.durations)
	}
}
