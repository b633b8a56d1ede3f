// Package servertest runs TuskPoint servers in processes of their own, for tests.
package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Variable is the environment variable with the program to run. By default, the program is the one
// that `make setup` installs in the repository.
const Variable = "TUSKPOINT_SERVER"

const (
	announcement = "tuskpoint-server listening on "
	startTime    = 30 * time.Second
	stopTime     = 15 * time.Second
)

// Server is a server that runs until it is stopped.
type Server struct {
	// Target is the address of the server, the same after each restart.
	Target string

	program   string
	arguments []string
	log       string
	process   *exec.Cmd
	ended     chan error
}

// Start runs a server that keeps its data below a directory, on a free port of this machine, with
// further arguments.
func Start(directory string, arguments ...string) (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	server := &Server{
		Target:    "127.0.0.1:0",
		program:   program,
		arguments: append([]string{"--data-dir", filepath.Join(directory, "data")}, arguments...),
		log:       filepath.Join(directory, "server.log"),
	}
	return server, server.Restart()
}

// find returns the path of the program to run.
func find() (string, error) {
	if named := os.Getenv(Variable); named != "" {
		return named, nil
	}
	_, here, _, _ := runtime.Caller(0)
	repository := filepath.Join(filepath.Dir(here), "..", "..", "..", "..")
	program := filepath.Join(repository, ".venv", "bin", "tuskpoint-server")
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("%w: run `make setup`, or name a tuskpoint-server in %s", err, Variable)
	}
	return program, nil
}

// Restart runs the server again with the same address and directory.
func (s *Server) Restart() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.process = exec.Command(s.program, append([]string{"--listen", s.Target}, s.arguments...)...)
	s.process.Stderr = log
	output, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if where, found := strings.CutPrefix(lines.Text(), announcement); found {
				listening <- where
			}
		}
		ended <- s.process.Wait()
	}()
	s.ended = ended
	select {
	case s.Target = <-listening:
		return nil
	case err := <-ended:
		return fmt.Errorf("the server ended (%w); its log:\n%s", orEOF(err), s.logged())
	case <-time.After(startTime):
		return errors.Join(fmt.Errorf("the server did not start in %s; its log:\n%s", startTime, s.logged()),
			s.Kill())
	}
}

// Stop ends the server with SIGTERM and waits until it has ended.
func (s *Server) Stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-s.ended:
		return err
	case <-time.After(stopTime):
		return errors.Join(fmt.Errorf("the server did not stop in %s", stopTime), s.Kill())
	}
}

// Kill ends the server with SIGKILL and waits until it has ended.
func (s *Server) Kill() error {
	if err := s.process.Process.Kill(); err != nil {
		return err
	}
	<-s.ended
	return nil
}

func (s *Server) logged() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}
