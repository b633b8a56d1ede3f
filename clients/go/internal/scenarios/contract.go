package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"tuskpoint.dev/go/tuskpoint"
)

const (
	contractPackage = "tuskpoint.v1"
	stepTime        = time.Minute
	actionTime      = 15 * time.Minute // `make soak-idle` watches for minutes
)

// callContract makes a call of the contract and returns its answer or answers.
func callContract(client *tuskpoint.Client, name string, step map[string]any) (any, error) {
	method, err := methodOf(name)
	if err != nil {
		return nil, err
	}
	given, streams := step["requests"].([]any)
	if !streams {
		given = []any{step["request"]}
	}
	requests := make([]proto.Message, len(given))
	for i, one := range given {
		if requests[i], err = messageOf(method.Input(), one); err != nil {
			return nil, err
		}
	}
	limit, err := durationOf(step["deadline_ms"])
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	if !method.IsStreamingClient() && !method.IsStreamingServer() {
		answer, err := messageOf(method.Output(), map[string]any{})
		if err != nil {
			return nil, err
		}
		if err := client.Connection().Invoke(ctx, path, requests[0], answer); err != nil {
			return nil, err
		}
		return fieldsOf(answer)
	}
	description := &grpc.StreamDesc{
		ClientStreams: method.IsStreamingClient(), ServerStreams: method.IsStreamingServer(),
	}
	stream, err := client.Connection().NewStream(ctx, description, path)
	if err != nil {
		return nil, err
	}
	take, limited := step["take"].(json.Number)
	return converse(stream, requests, method.Output(), func(taken int) bool {
		return limited && take.String() == fmt.Sprint(taken)
	})
}

// converse sends all requests and returns the answers until enough reports true.
func converse(
	stream grpc.ClientStream, requests []proto.Message, kind protoreflect.MessageDescriptor,
	enough func(taken int) bool,
) (any, error) {
	for _, request := range requests {
		// EOF: the server has ended the stream, and its answer has the cause.
		if err := stream.SendMsg(request); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	answers := []any{}
	for !enough(len(answers)) {
		answer, err := messageOf(kind, map[string]any{})
		if err != nil {
			return nil, err
		}
		if err := stream.RecvMsg(answer); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		fields, err := fieldsOf(answer)
		if err != nil {
			return nil, err
		}
		answers = append(answers, fields)
	}
	return answers, nil
}

// methodOf finds a method such as "ThreadService/GetThread" in the contract.
func methodOf(name string) (protoreflect.MethodDescriptor, error) {
	service, method, _ := strings.Cut(name, "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(contractPackage + "." + service))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	described, isService := found.(protoreflect.ServiceDescriptor)
	if !isService || described.Methods().ByName(protoreflect.Name(method)) == nil {
		return nil, fmt.Errorf("the contract has no %s", name)
	}
	return described.Methods().ByName(protoreflect.Name(method)), nil
}

// messageOf builds a message from proto3 JSON.
func messageOf(kind protoreflect.MessageDescriptor, given any) (proto.Message, error) {
	found, err := protoregistry.GlobalTypes.FindMessageByName(kind.FullName())
	if err != nil {
		return nil, err
	}
	text, err := encode(given)
	if err != nil {
		return nil, err
	}
	message := found.New().Interface()
	return message, protojson.Unmarshal(text, message)
}

// fieldsOf returns a message as proto3 JSON with the field names of the protos.
func fieldsOf(message proto.Message) (any, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		return nil, err
	}
	var fields any
	return fields, decode(text, &fields)
}

func durationOf(milliseconds any) (time.Duration, error) {
	given, has := milliseconds.(json.Number)
	if !has {
		return stepTime, nil
	}
	number, err := given.Int64()
	return time.Duration(number) * time.Millisecond, err
}
