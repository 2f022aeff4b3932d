//go:build unix

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"example.com/typedqueue/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The test binary is a replica of its own where this names an endpoint.
const replicaOf = "ETCD_TEST_REPLICA_OF"

// What parent and child tell each other, by keys of etcd.
const (
	begun   = "/told/begun"
	goOn    = "/told/go-on"
	outcome = "/told/outcome"
)

func TestMain(m *testing.M) {
	if endpoint := os.Getenv(replicaOf); endpoint != "" {
		child(endpoint)
		return
	}
	os.Exit(m.Run())
}

// child is a replica that writes the effect of its first task only once it is told to. It
// does not look at the task's context: that is not what keeps it from writing.
func child(endpoint string) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		panic(err)
	}
	first := true
	c := newReplica(client, "a", func(ctx context.Context, task *task) error {
		if !first {
			return carryOut(ctx, task)
		}
		first = false
		ctx = context.Background()
		if _, err := client.Put(ctx, begun, ""); err != nil {
			panic(err)
		}
		for range client.Watch(ctx, goOn, clientv3.WithRev(1)) {
			break
		}
		err := carryOut(ctx, task)
		said := "accepted"
		if errors.Is(err, etcd.ErrFenced) {
			said = "fenced"
		}
		if _, err := client.Put(ctx, outcome, said); err != nil {
			panic(err)
		}
		return err
	}, nil)
	_ = c.Run(context.Background()) // until it is killed
}

// TestPausedReplica stops a replica, as a process, in the middle of a task, until its lease has
// ended and another has carried the task out; then lets it go on.
func TestPausedReplica(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	key := keyThatMoves(t, "a", []string{"a", "b"}, "b", []string{"b"})
	put(t, client, prefixes.Source+key, "x")
	there := func(key string) func() bool {
		return func() bool { return len(content(t, client, key)) == 1 }
	}
	a := exec.Command(os.Args[0])
	a.Env = append(os.Environ(), replicaOf+"="+nodes[0].endpoint())
	a.Stderr = os.Stderr
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = a.Process.Kill()
		_ = a.Wait() // killed
	}()
	eventually(t, "a has begun", there(begun))
	b := startReplica(t, client, "b", carryOut)
	eventually(t, "both are there", func() bool { return len(b.Members()) == 2 })
	if err := a.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	carriedOut(t, client)
	put(t, client, goOn, "")
	if err := a.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a has tried to write", there(outcome))
	if got := content(t, client, outcome)[""]; got != "fenced" {
		t.Errorf("the paused replica's effect was %s", got)
	}
	if got := content(t, client, prefixes.Effects)[key]; !strings.HasSuffix(got, " b") {
		t.Errorf("the effect is %q, and not b's", got)
	}
	eventually(t, "a is back", func() bool { return slices.Equal(b.Members(), []string{"a", "b"}) })
	put(t, client, prefixes.Source+key, "y")
	carriedOut(t, client)
	if got := content(t, client, prefixes.Effects)[key]; !strings.HasSuffix(got, " a") {
		t.Errorf("the effect is %q, and not a's", got)
	}
}
