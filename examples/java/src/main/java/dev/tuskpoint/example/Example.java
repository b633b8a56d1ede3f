package dev.tuskpoint.example;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import dev.tuskpoint.v1.Channel;
import dev.tuskpoint.v1.Checkpoint;
import dev.tuskpoint.v1.CheckpointRef;
import dev.tuskpoint.v1.CheckpointServiceGrpc;
import dev.tuskpoint.v1.CheckpointState;
import dev.tuskpoint.v1.GetCheckpointRequest;
import dev.tuskpoint.v1.SaveCheckpointRequest;
import dev.tuskpoint.v1.Value;
import dev.tuskpoint.v1.Version;
import dev.tuskpoint.v1.View;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.time.Instant;
import java.util.concurrent.TimeUnit;

/**
 * Saves a checkpoint, loads it, and asks for one that does not exist.
 *
 * <p>The only argument is the server's HOST:PORT. For a server that speaks TLS, {@code
 * TlsChannelCredentials} takes the place of {@code InsecureChannelCredentials}, and a {@code
 * CallCredentials} adds "authorization: Bearer TOKEN" to every call.
 */
public final class Example {
  private static final String THREAD = "java-thread";
  private static final String PLAN = "[\"lire\",\"écrire\"]";
  private static final String MISSING = "00000000-0000-6000-8000-000000000000";

  private Example() {}

  public static void main(String[] arguments) throws InterruptedException {
    if (arguments.length != 1) {
      System.err.println("usage: Example HOST:PORT");
      System.exit(2);
    }
    ManagedChannel channel =
        Grpc.newChannelBuilder(arguments[0], InsecureChannelCredentials.create()).build();
    try {
      CheckpointServiceGrpc.CheckpointServiceBlockingStub checkpoints =
          CheckpointServiceGrpc.newBlockingStub(channel)
              .withDeadlineAfter(30, TimeUnit.SECONDS);
      String saved = save(checkpoints);
      System.out.println("plan: " + plan(checkpoints, saved));
      System.out.println("missing: " + reason(checkpoints));
    } finally {
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  /** Saves a state of one channel, and returns the ID that the server made. */
  private static String save(CheckpointServiceGrpc.CheckpointServiceBlockingStub checkpoints) {
    Value plan =
        Value.newBuilder().setType("json").setData(ByteString.copyFromUtf8(PLAN)).build();
    CheckpointState.Builder state =
        CheckpointState.newBuilder()
            .setSchemaVersion(4)
            .setTs(Instant.now().toString())
            .addChannels(
                Channel.newBuilder()
                    .setName("plan")
                    .setVersion(Version.newBuilder().setText("1"))
                    .setValue(plan));
    Checkpoint checkpoint =
        Checkpoint.newBuilder()
            .setRef(CheckpointRef.newBuilder().setThreadId(THREAD))
            .setState(state)
            .setSummary("Planned in Java.")
            .build();
    SaveCheckpointRequest request =
        SaveCheckpointRequest.newBuilder().setCheckpoint(checkpoint).setAgentId("planner").build();
    return checkpoints.saveCheckpoint(request).getRef().getCheckpointId();
  }

  /** Returns the plan as JSON, whatever language saved it. */
  private static String plan(
      CheckpointServiceGrpc.CheckpointServiceBlockingStub checkpoints, String checkpointId) {
    GetCheckpointRequest request =
        GetCheckpointRequest.newBuilder()
            .setRef(CheckpointRef.newBuilder().setThreadId(THREAD).setCheckpointId(checkpointId))
            .setView(View.VIEW_JSON)
            .build();
    Channel plan = checkpoints.getCheckpoint(request).getCheckpoint().getState().getChannels(0);
    return plan.getValue().getData().toStringUtf8();
  }

  /** Returns the status and the reason of the error for a missing checkpoint. */
  private static String reason(CheckpointServiceGrpc.CheckpointServiceBlockingStub checkpoints) {
    try {
      return plan(checkpoints, MISSING);
    } catch (StatusRuntimeException error) {
      return error.getStatus().getCode() + " " + reasonOf(error);
    }
  }

  private static String reasonOf(StatusRuntimeException error) {
    com.google.rpc.Status status = StatusProto.fromThrowable(error);
    for (com.google.protobuf.Any detail : status.getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        try {
          return detail.unpack(ErrorInfo.class).getReason();
        } catch (InvalidProtocolBufferException malformed) {
          throw new IllegalStateException("the server sent a malformed ErrorInfo", malformed);
        }
      }
    }
    return "";
  }
}
