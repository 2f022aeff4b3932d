package prometheus

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterWithControllerRuntime returns a new Collector that it has registered with registry,
// which is meant to be controller-runtime's metrics.Registry. That has collectors of
// client-go's names already, with labels and help texts of its own, and a registry takes
// only one kind of each. So the Collector's metrics have these (those of v0.25): the labels
// name and controller, both with the queue's name, and workqueue_depth also an empty priority.
// Queues of both kinds then stand side by side in one scrape, under names that must
// differ: a queue that controller-runtime itself made for a controller has that controller's.
//
// It is an error if registry has one of the names with other labels or another text, or a
// Collector already; then nothing more is registered than before. In a registry that has
// none of the names, the Collector is one like any other. A nil registry panics.
func RegisterWithControllerRuntime(registry prometheus.Registerer) (*Collector, error) {
	if registry == nil {
		panic("typedqueue: nil registry")
	}
	c := newCollector(true)
	for i, d := range c.descs {
		there, err := has(registry, d)
		if err != nil {
			return nil, fmt.Errorf("typedqueue: %s does not fit into the registry: %w", families[i].name, err)
		}
		if !there {
			c.described = append(c.described, d)
		}
	}
	if err := registry.Register(c); err != nil {
		return nil, fmt.Errorf("typedqueue: %w", err)
	}
	return c, nil
}

// has reports whether d is the one metric of a collector in registry. It is an error if it is
// there in another way, or in another shape. A registry can be asked only by registering.
func has(registry prometheus.Registerer, d *prometheus.Desc) (bool, error) {
	err := registry.Register(probe{d})
	if err == nil {
		registry.Unregister(probe{d})
		return false, nil
	}
	if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return true, nil
	}
	return false, err
}

// probe is a collector of nothing under one name.
type probe struct{ desc *prometheus.Desc }

func (p probe) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }
func (p probe) Collect(chan<- prometheus.Metric)    {}
