package tuskpoint_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/internal/servertest"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const anywhere = "127.0.0.1:0"

// named returns a server that sends its name to a channel when it is called.
func named(name string, called chan<- string) *scripted {
	return &scripted{info: func(int, context.Context) error {
		called <- name
		return nil
	}}
}

// takeTurns calls until as many consecutive calls as there are expected servers were answered by
// all of them.
func takeTurns(t *testing.T, client *tuskpoint.Client, called <-chan string, expected ...string) {
	t.Helper()
	ctx, last := within(t), []string{}
	for !slices.Equal(slices.Sorted(slices.Values(last)), expected) {
		must(client.Info(ctx))(t)
		last = append(last, <-called)
		last = last[max(0, len(last)-len(expected)):]
	}
}

// replaced starts a server; its client also knows the address at which replace starts the next one.
func replaced(t *testing.T, before, after *scripted) (client *tuskpoint.Client, replace func()) {
	t.Helper()
	first, stop := start(t, before, anywhere)
	listener := must(net.Listen("tcp", anywhere))(t)
	second := listener.Addr().String()
	listener.Close()
	return dialTo(t, first+","+second), func() { start(t, after, second); stop() }
}

func TestServersTakeTurnsExceptOneThatIsGoneUntilItIsBack(t *testing.T) {
	called := make(chan string, 100)
	first, _ := start(t, named("1", called), anywhere)
	second, stop := start(t, named("2", called), anywhere)
	client := dialTo(t, first+", "+second)
	takeTurns(t, client, called, "1", "2")
	stop()
	takeTurns(t, client, called, "1", "1", "1", "1")
	start(t, named("3", called), second)
	takeTurns(t, client, called, "1", "3")
}

func TestTheAddressesOfANameTakeTurns(t *testing.T) {
	called := make(chan string, 100)
	first, _ := start(t, named("1", called), anywhere)
	port := first[strings.LastIndexByte(first, ':'):]
	start(t, named("2", called), "127.0.0.2"+port)
	names := serveNames(t, "127.0.0.1", "127.0.0.2")
	client := dialTo(t, "dns://"+names+"/agents.example"+port)
	takeTurns(t, client, called, "1", "2")
}

func TestTheCertificateOfEachServerOfAListIsCheckedForItsOwnName(t *testing.T) {
	made := must(servertest.Secure(t.TempDir()))(t)
	pair := must(tls.LoadX509KeyPair(made.ServerCert, made.ServerKey))(t)
	called, expected := make(chan string, 100), make(chan string, 100)
	secured := grpc.Creds(credentials.NewTLS(&tls.Config{
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			expected <- hello.ServerName
			return &pair, nil
		},
	}))
	first, _ := start(t, named("1", called), anywhere, secured)
	second, _ := start(t, named("2", called), anywhere, secured)
	second = strings.Replace(second, "127.0.0.1", "localhost", 1)
	client := dialTo(t, first+","+second, tuskpoint.WithCAFile(made.CAFile))
	takeTurns(t, client, called, "1", "2")
	names := []string{<-expected, <-expected}
	slices.Sort(names)
	want(t, "what the servers are called", strings.Join(names, " "), " localhost") // no IP is sent
}

func TestAWatchContinuesOnAnotherServerAfterItsLastEvent(t *testing.T) {
	again := make(chan struct{})
	event := func(number byte) *tuskpointv1.WatchThreadResponse {
		return &tuskpointv1.WatchThreadResponse{Frame: &tuskpointv1.WatchThreadResponse_Event{
			Event: &tuskpointv1.ThreadEvent{Kind: tuskpoint.LabelSet, Cursor: []byte{number}, Seq: uint64(number)},
		}}
	}
	before := &scripted{watch: func(
		call int, _ *tuskpointv1.WatchThreadRequest, send func(*tuskpointv1.WatchThreadResponse),
	) error {
		if call == 2 {
			close(again)
			<-t.Context().Done()
		}
		send(event(1))
		send(event(2))
		return status.Error(codes.Unavailable, "dropped")
	}}
	after := &scripted{watch: func(
		_ int, request *tuskpointv1.WatchThreadRequest, send func(*tuskpointv1.WatchThreadResponse),
	) error {
		want(t, "the cursor", bytes.Equal(request.GetCursor(), []byte{2}), true)
		send(event(3))
		<-t.Context().Done()
		return nil
	}}
	client, replace := replaced(t, before, after)
	ctx, seen := within(t), make(chan uint64, 3)
	go func() {
		defer close(seen)
		for event, err := range client.Watch(ctx, "t", nil) {
			if err != nil || event.Sequence > 3 {
				return
			}
			seen <- event.Sequence
		}
	}()
	<-again
	replace()
	for number := range uint64(3) {
		want(t, "the sequence", <-seen, number+1)
	}
}

func TestASaveWithoutAnAnswerIsSentAgainToAnotherServer(t *testing.T) {
	saved := make(chan string, 100)
	before := &scripted{save: func(_ int, request *tuskpointv1.SaveCheckpointRequest) error {
		saved <- request.GetCheckpoint().GetRef().GetCheckpointId()
		<-t.Context().Done()
		return nil
	}}
	after := &scripted{save: func(_ int, request *tuskpointv1.SaveCheckpointRequest) error {
		saved <- request.GetCheckpoint().GetRef().GetCheckpointId()
		return nil
	}}
	client, replace := replaced(t, before, after)
	ctx, done := within(t), make(chan error, 1)
	go func() {
		_, err := client.Save(ctx, "t", map[string]any{"a": 1}, &tuskpoint.SaveOptions{Root: true})
		done <- err
	}()
	id := <-saved
	replace()
	want(t, "the save fails", <-done, nil)
	want(t, "the ID of the repetition", <-saved, id)
}

// serveNames runs a DNS server that gives each name these IPv4 addresses; it returns the address of
// the DNS server.
func serveNames(t *testing.T, addresses ...string) string {
	t.Helper()
	server := must(net.ListenPacket("udp", anywhere))(t)
	t.Cleanup(func() { server.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			length, client, err := server.ReadFrom(query)
			if err != nil {
				return // the connection is closed
			}
			question := query[12 : 12+bytes.IndexByte(query[12:length], 0)+5]
			answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
			if question[len(question)-3] == 1 { // not for IPv6
				answer[7] = byte(len(addresses))
				for _, one := range addresses {
					answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4)
					answer = append(answer, net.ParseIP(one).To4()...)
				}
			}
			server.WriteTo(answer, client)
		}
	}()
	return server.LocalAddr().String()
}
