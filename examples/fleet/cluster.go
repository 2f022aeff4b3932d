package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// A cluster is the etcd of a run, and the run's own part of it.
type cluster struct {
	client    *clientv3.Client
	endpoints []string
	prefix    string // ends in a slash; nobody else's keys begin with it
	start     int64  // the revision before the first of the run
	server    *embed.Etcd
	dir       string // of server
}

// openCluster connects to etcd at endpoints, or starts one if there are none; durable tells
// whether that waits for the disk, as it must where it is to outlive a crash of the machine.
func openCluster(ctx context.Context, endpoints []string, durable bool) (c *cluster, err error) {
	opened := &cluster{endpoints: endpoints, prefix: fmt.Sprintf("typedqueue-fleet/%016x/", rand.Uint64())}
	defer func() {
		if err != nil {
			_ = opened.close() // the error at hand says more
		}
	}()
	c = opened
	if len(endpoints) == 0 {
		if err := c.serve(ctx, durable); err != nil {
			return nil, fmt.Errorf("start etcd: %w", err)
		}
	}
	if c.client, err = connect(c.endpoints); err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	got, err := c.client.Get(asking, c.prefix)
	if err != nil {
		return nil, fmt.Errorf("no answer from etcd at %s: %w", strings.Join(c.endpoints, ","), err)
	}
	c.start = got.Header.Revision
	return c, nil
}

func connect(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialKeepAliveTime:    10 * time.Second, // so that a connection that has died is noticed
		DialKeepAliveTimeout: 2 * time.Second,
		Logger:               zap.NewNop(),
	})
}

// serve starts an etcd of one member, on a free port of this machine alone.
func (c *cluster) serve(ctx context.Context, durable bool) (err error) {
	if c.dir, err = os.MkdirTemp("", "fleet-etcd-"); err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Dir = c.dir
	cfg.LogLevel = "fatal" // its clients are killed, and it need not say so
	cfg.UnsafeNoFsync = !durable
	free := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = free, free
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = free, free
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	if c.server, err = embed.StartEtcd(cfg); err != nil {
		return err
	}
	c.endpoints = []string{c.server.Clients[0].Addr().String()}
	select {
	case <-c.server.Server.ReadyNotify():
		return nil
	case err := <-c.server.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close leaves nothing of the run behind.
func (c *cluster) close() error {
	var errs []error
	if c.client != nil {
		if c.server == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err := c.client.Delete(ctx, c.prefix, clientv3.WithPrefix())
			errs = append(errs, err)
		}
		errs = append(errs, c.client.Close())
	}
	if c.server != nil {
		c.server.Close()
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// watch calls see for each event of the run so far and from now on, oldest first, until see
// returns false or ctx is done.
func (c *cluster) watch(ctx context.Context, see func(event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for got := range c.client.Watch(ctx, c.prefix, clientv3.WithPrefix(), clientv3.WithRev(c.start+1)) {
		if err := got.Err(); err != nil {
			return fmt.Errorf("read etcd's history: %w", err)
		}
		for _, e := range got.Events {
			if !see(c.event(e)) {
				return nil
			}
		}
	}
	return context.Cause(ctx)
}

func (c *cluster) event(e *clientv3.Event) event {
	return event{
		revision: e.Kv.ModRevision,
		key:      strings.TrimPrefix(string(e.Kv.Key), c.prefix),
		value:    e.Kv.Value,
		lease:    e.Kv.Lease,
		deleted:  e.Type == clientv3.EventTypeDelete,
	}
}

// history ends the run and returns all that has happened in it, from the beginning.
func (c *cluster) history(ctx context.Context) (events []event, err error) {
	if _, err := c.client.Put(ctx, c.prefix+endKey, ""); err != nil {
		return nil, err
	}
	err = c.watch(ctx, func(e event) bool {
		events = append(events, e)
		return e.key != endKey
	})
	return events, err
}
